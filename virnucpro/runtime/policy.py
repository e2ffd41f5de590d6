"""What to do about a worker that failed: start it again, or give it up. Pure.

Three things look alike at first: a piece of work that kills whoever takes it, a device that is bad
for good, and one that fails now and then. A worker is therefore told where processes have died. It
takes those places last, so that a bad device shows itself elsewhere; a place where processes died
twice it takes in halves, so that each further death halves what can be at fault; and a single thing
that it died of although it had got through others, it tries again first of all: only who dies of
that, too, has found the culprit. A bad device never gets through others; one that fails now and
then gets through the trial.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import NamedTuple

from virnucpro.runtime.status import Fault

__all__ = ["Action", "Decision", "Findings", "RestartPolicy", "TaskSpan", "decide", "findings"]


class TaskSpan(NamedTuple):
    """A piece of work: the things `first` to ``stop - 1`` of one stage of one task.

    One without things cannot be halved: nothing is found out about it.
    """

    task: int
    stage: int
    first: int
    stop: int

    def holds(self, other: "TaskSpan") -> bool:
        """Say whether `other` lies in this place."""
        same = self[:2] == other[:2]
        return same and self.first <= other.first and other.stop <= self.stop


@dataclass(frozen=True, slots=True)
class RestartPolicy:
    """How much patience there is.

    Attributes
    ----------
    max_restarts
        Restarts of a worker in a row that lead nowhere: neither further in the work, nor closer
        to the thing that kills it. 0: it is never started again. A search that comes closer and
        closer and never finds anything ends, too.
    first_delay, longest_delay
        Seconds before the first of them; each further one waits twice as long, up to the longest.
    """

    max_restarts: int = 3
    first_delay: float = 0.5
    longest_delay: float = 30.0


class Action(StrEnum):
    """What to do about a worker that failed."""

    RESTART = "restart"
    """It may have been bad luck."""
    NARROW = "narrow"
    """Start it again, and take the place in which it died in halves."""
    QUARANTINE = "quarantine"
    """Start it again, without the one thing that it dies of."""
    GIVE_UP = "give up"
    """Its work is for others, where there are any."""


class Decision(NamedTuple):
    """What to do, and when: in `delay` seconds."""

    action: Action
    delay: float


@dataclass(frozen=True, slots=True)
class Findings:
    """What the deaths of workers say of the work.

    Attributes
    ----------
    seen
        Places in which a process died once: to be taken after all others.
    suspects
        Places in which processes died again, disjoint: to be taken last, in halves.
    trials
        Suspects of one thing each that a process died of after others: to be tried first, alone;
        with the worker that is to do it.
    convicted
        Places of one thing each that kill processes, with the last death: to be left out.
    """

    seen: tuple[TaskSpan, ...] = ()
    suspects: tuple[TaskSpan, ...] = ()
    trials: tuple[tuple[TaskSpan, int], ...] = ()
    convicted: tuple[tuple[TaskSpan, Fault], ...] = ()

    def of(self, task: int) -> "Findings":
        """Keep what concerns one task."""
        return Findings(
            tuple(place for place in self.seen if place.task == task),
            tuple(place for place in self.suspects if place.task == task),
            tuple(pair for pair in self.trials if pair[0].task == task),
            tuple(pair for pair in self.convicted if pair[0].task == task),
        )

    def __bool__(self) -> bool:
        return bool(self.seen or self.suspects or self.convicted)


def findings(faults: Sequence[Fault]) -> Findings:
    """Read what the faults of all workers of one job, in the order of time, say of the work.

    Parameters
    ----------
    faults
        Those without a place say nothing of the work and count for nothing here; nor do those for
        want of memory, which was asked for by the one and may be held by another.
    """
    found = Findings()
    works: set[int] = set()
    alone: dict[TaskSpan, set[int]] = {}
    for fault in faults:
        if fault.passed:
            works.add(fault.rank)
        if not fault.place or fault.permanent or fault.kind == MemoryError.__name__:
            continue
        place = TaskSpan(*fault.place)
        ranks = alone.setdefault(place, set())
        ranks.add(fault.rank)
        found = _acquit(found, place, fault.rank)
        found = _learn(found, place, fault, several=len(ranks & works) > 1)
    return found


def _acquit(found: Findings, place: TaskSpan, rank: int) -> Findings:
    """Let go of what this worker tried first and did not die of."""
    passed = [trial for trial, tried_by in found.trials if tried_by == rank and trial != place]
    return replace(
        found,
        trials=tuple(pair for pair in found.trials if pair[0] not in passed),
        suspects=tuple(one for one in found.suspects if one not in passed),
    )


def _learn(found: Findings, place: TaskSpan, fault: Fault, *, several: bool) -> Findings:
    """Add one death; `several`: workers that do work died of the very same."""
    size = place.stop - place.first
    if size == 0 or any(one == place for one, _ in found.convicted):
        return found
    tried = several or any(one == place for one, _ in found.trials)
    if size == 1 and tried and not fault.passed:
        return _without(found, place, convicted=(*found.convicted, (place, fault)))
    if not any(one.holds(place) for one in (*found.seen, *found.suspects)):
        return replace(found, seen=(*found.seen, place))
    found = _without(found, place, convicted=found.convicted)
    trials = found.trials
    if size == 1 and fault.passed:
        trials = (*trials, (place, fault.rank))
    return replace(found, suspects=(*found.suspects, place), trials=trials)


def _without(
    found: Findings, place: TaskSpan, convicted: tuple[tuple[TaskSpan, Fault], ...]
) -> Findings:
    """Forget the places that hold this one: it stands for them."""
    return Findings(
        tuple(one for one in found.seen if not one.holds(place)),
        tuple(one for one in found.suspects if not one.holds(place)),
        tuple(pair for pair in found.trials if pair[0] != place),
        convicted,
    )


def decide(
    own: Sequence[Fault], before: Findings, after: Findings, policy: RestartPolicy
) -> Decision:
    """Say what to do about a worker that has just failed.

    Parameters
    ----------
    own
        Its faults, the last one included.
    before, after
        The findings of the job without and with that last fault.
    """
    if own[-1].permanent or policy.max_restarts == 0:
        return Decision(Action.GIVE_UP, 0.0)
    recent = _since_the_last_gain(own, after)
    in_vain = sum(not _narrows(recent[: number + 1]) for number in range(len(recent)))
    if in_vain > policy.max_restarts or len(recent) > _search(recent) + policy.max_restarts:
        return Decision(Action.GIVE_UP, 0.0)
    delay = 0.0
    if recent and not _narrows(recent):
        longer = policy.first_delay * 2.0 ** min(in_vain - 1, 64)
        delay = min(policy.longest_delay, longer)
    if len(after.convicted) > len(before.convicted):
        return Decision(Action.QUARANTINE, delay)
    if {*after.suspects} - {*before.suspects} or {*after.trials} - {*before.trials}:
        return Decision(Action.NARROW, delay)
    return Decision(Action.RESTART, delay)


def _since_the_last_gain(own: Sequence[Fault], found: Findings) -> Sequence[Fault]:
    """Keep the faults after which nothing was gained: neither rows done nor a culprit found."""
    culprits = [fault for _, fault in found.convicted]
    recent: list[Fault] = []
    done = 0
    for fault in own:
        gained = fault.done > done or fault in culprits
        recent = [] if gained else [*recent, fault]
        done = max(done, fault.done)
    return recent


def _narrows(faults: Sequence[Fault]) -> bool:
    """Say whether the last of these faults came closer to its cause than those before.

    In a smaller place within one where the worker had died, having got through others.
    """
    *earlier, last = faults
    if not (last.place and last.passed):
        return False
    place = TaskSpan(*last.place)
    around = [TaskSpan(*fault.place) for fault in earlier if fault.place]
    return any(one.holds(place) and one != place for one in around)


def _search(faults: Sequence[Fault]) -> int:
    """Give the number of deaths that finding one culprit may take, with some to spare."""
    sizes = [fault.place[3] - fault.place[2] for fault in faults if fault.place]
    return 4 + 2 * math.ceil(math.log2(max([2, *sizes])))

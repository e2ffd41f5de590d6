"""What to do about a worker that failed: start it again, or give it up. Pure.

Two things look alike at first: a device that is bad, and a piece of work that kills whoever takes
it. A worker is therefore told where processes have died: it takes those places last, so that a bad
device shows itself elsewhere; a place where processes died twice is taken in halves, so that each
further death halves what can be at fault; and a single thing in which a process died although it
had got through others is convicted.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import NamedTuple

from virnucpro.runtime.status import Fault

__all__ = ["Action", "Decision", "Findings", "Place", "RestartPolicy", "decide", "findings"]


class Place(NamedTuple):
    """A piece of work: the things `first` to ``stop - 1`` of one stage of one task."""

    task: int
    stage: int
    first: int
    stop: int

    def holds(self, other: "Place") -> bool:
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
        to the thing that kills it. 0: it is never started again.
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
    convicted
        Places of one thing each that kill processes, with the last death: to be left out.
    """

    seen: tuple[Place, ...] = ()
    suspects: tuple[Place, ...] = ()
    convicted: tuple[tuple[Place, Fault], ...] = ()

    def of(self, task: int) -> "Findings":
        """Keep what concerns one task."""
        return Findings(
            tuple(place for place in self.seen if place.task == task),
            tuple(place for place in self.suspects if place.task == task),
            tuple(pair for pair in self.convicted if pair[0].task == task),
        )

    def __bool__(self) -> bool:
        return bool(self.seen or self.suspects or self.convicted)


def findings(faults: Sequence[Fault]) -> Findings:
    """Read what the faults of all workers of one job, in the order of time, say of the work.

    Parameters
    ----------
    faults
        Those without a place say nothing of the work and count for nothing here.
    """
    found = Findings()
    done: dict[int, int] = {}
    works: set[int] = set()
    for number, fault in enumerate(faults):
        if fault.passed or fault.done > done.get(fault.rank, 0):
            works.add(fault.rank)
        done[fault.rank] = max(fault.done, done.get(fault.rank, 0))
        if fault.place and not fault.permanent:
            here = {one.rank for one in faults[: number + 1] if one.place == fault.place}
            found = _learn(found, fault, proven=fault.rank in works or len(here) > 1)
    return found


def _learn(found: Findings, fault: Fault, *, proven: bool) -> Findings:
    """Add one death; `proven`: what died has worked elsewhere, or is not the only one that died."""
    place = Place(*fault.place)
    if any(one == place for one, _ in found.convicted):
        return found
    if not any(one.holds(place) for one in (*found.seen, *found.suspects)):
        return replace(found, seen=(*found.seen, place))
    seen = tuple(one for one in found.seen if not one.holds(place))
    suspects = tuple(one for one in found.suspects if not one.holds(place))
    if place.stop - place.first == 1 and proven:
        return Findings(seen, suspects, (*found.convicted, (place, fault)))
    return Findings(seen, (*suspects, place), found.convicted)


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
    last = own[-1]
    if last.permanent or policy.max_restarts == 0:
        return Decision(Action.GIVE_UP, 0.0)
    in_vain = _in_vain(own)
    if in_vain > policy.max_restarts:
        return Decision(Action.GIVE_UP, 0.0)
    delay = 0.0
    if in_vain:
        delay = min(policy.longest_delay, policy.first_delay * 2.0 ** min(in_vain - 1, 64))
    if len(after.convicted) > len(before.convicted):
        return Decision(Action.QUARANTINE, delay)
    if after.suspects != before.suspects:
        return Decision(Action.NARROW, delay)
    return Decision(Action.RESTART, delay)


def _in_vain(own: Sequence[Fault]) -> int:
    """Count the faults at the end that led nowhere."""
    count = 0
    for number in range(len(own) - 1, -1, -1):
        if _led_somewhere(own[: number + 1]):
            break
        count += 1
    return count


def _led_somewhere(own: Sequence[Fault]) -> bool:
    """Say whether the last of these faults came after rows were done, or closer to its cause.

    Closer: in a place where it had died before, having got through other places. That happens a
    limited number of times: the place is halved each time.
    """
    *earlier, last = own
    if last.done > max((fault.done for fault in earlier), default=0):
        return True
    if not (last.place and last.passed):
        return False
    place = Place(*last.place)
    return any(fault.place and Place(*fault.place).holds(place) for fault in earlier)

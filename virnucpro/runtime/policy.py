"""Decision about a failed worker: restart it, or let it fail permanently. No I/O.

A worker can die for three reasons: an item that kills every process, a defective device, or a
device that fails sometimes. A span is a range of items that a worker processes together. To
find the reason, the spans in which workers died are processed again:

- They are processed after all other spans. A defective device fails in the other spans first.
- A span with two deaths is called a suspect. It is split into halves. After a further death, the
  half with this death is split again.
- If a worker finished other items and then died in a single item, the restarted worker retries
  this item first. This retry is called a trial. If the worker dies again, the item is the cause.
  A defective device never finishes other items. A device that fails sometimes survives the
  trial.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import NamedTuple

from virnucpro.runtime.status import Fault


class TaskSpan(NamedTuple):
    """A piece of work: the items `first` to ``stop - 1`` of one task.

    `stage` is the number of a phase of the task. Spans of different stages are never compared.

    Deaths in an empty span (`first` equals `stop`) are ignored, because it has no faulty item.
    """

    task: int
    stage: int
    first: int
    stop: int

    def holds(self, other: "TaskSpan") -> bool:
        """Return whether all items of the span `other` are in this span."""
        same = self[:2] == other[:2]
        return same and self.first <= other.first and other.stop <= self.stop


@dataclass(frozen=True, slots=True)
class RestartPolicy:
    """Limits for the restarts of workers.

    Attributes
    ----------
    max_restarts
        Maximum number of restarts of a worker without progress; 0: no restarts. Progress means
        more computed rows, or the detection of an item that kills workers. Restarts that narrow
        the search for such an item are not counted; they have a separate limit.
    first_delay, longest_delay
        Delay in seconds before the first restart without progress, and the maximum delay. The
        delay doubles after each restart without progress.
    """

    max_restarts: int = 3
    first_delay: float = 0.5
    longest_delay: float = 30.0


class Action(StrEnum):
    """Possible reactions of the parent to the failure of a worker."""

    RESTART = "restart"
    """Restart the worker unchanged: the failure may be temporary."""
    NARROW = "narrow"
    """Restart the worker, and split the span in which it died into halves."""
    QUARANTINE = "quarantine"
    """Restart the worker without the item that kills it."""
    GIVE_UP = "give up"
    """Do not restart the worker; other workers get its remaining work."""


class Decision(NamedTuple):
    """The action after the failure of a worker, and the seconds to wait before the action."""

    action: Action
    delay: float


@dataclass(frozen=True, slots=True)
class Findings:
    """Spans in which workers died, grouped by how likely the span contains the faulty item.

    Attributes
    ----------
    seen
        Spans in which a process died once. They are processed after all other spans.
    suspects
        Spans, without overlap, in which processes died twice or more. They are split into halves
        and processed last.
    trials
        Pairs of a span of one item and a rank. The worker of this rank finished other items and
        then died in this item. After its restart, it retries the item first.
    isolated
        Pairs of a span of one item that kills processes, and its last failure. These items are
        skipped.
    """

    seen: tuple[TaskSpan, ...] = ()
    suspects: tuple[TaskSpan, ...] = ()
    trials: tuple[tuple[TaskSpan, int], ...] = ()
    isolated: tuple[tuple[TaskSpan, Fault], ...] = ()

    def of_task(self, task: int) -> "Findings":
        """Return the findings that belong to the task with this number."""
        return Findings(
            tuple(place for place in self.seen if place.task == task),
            tuple(place for place in self.suspects if place.task == task),
            tuple(pair for pair in self.trials if pair[0].task == task),
            tuple(pair for pair in self.isolated if pair[0].task == task),
        )

    def __bool__(self) -> bool:
        return bool(self.seen or self.suspects or self.isolated)


def findings(faults: Sequence[Fault]) -> Findings:
    """Return the spans in which workers of one job died, grouped as in `Findings`.

    Parameters
    ----------
    faults
        The failures in order of time. Three kinds are ignored: permanent failures, failures
        outside of a piece of work, and failures due to lack of memory, since other processes may
        use the memory.
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
        found = _drop_passed_trials(found, place, fault.rank)
        found = _add_death(found, place, fault, several=len(ranks & works) > 1)
    return found


def _drop_passed_trials(found: Findings, place: TaskSpan, rank: int) -> Findings:
    """Return the findings without the trials that the worker `rank` survived.

    A trial is the retry of one suspected item. The worker died in the span `place`, so it survived
    the trials of all other spans.
    """
    passed = [trial for trial, tried_by in found.trials if tried_by == rank and trial != place]
    return replace(
        found,
        trials=tuple(pair for pair in found.trials if pair[0] not in passed),
        suspects=tuple(span for span in found.suspects if span not in passed),
    )


def _add_death(found: Findings, place: TaskSpan, fault: Fault, *, several: bool) -> Findings:
    """Return the findings after one more death: the failure `fault` in the span `place`.

    `several` is true if two or more workers that also finished other items died in this span.
    """
    size = place.stop - place.first
    if size == 0 or any(span == place for span, _ in found.isolated):
        return found
    tried = several or any(span == place for span, _ in found.trials)
    if size == 1 and tried and not fault.passed:
        return _without(found, place, isolated=(*found.isolated, (place, fault)))
    if not any(span.holds(place) for span in (*found.seen, *found.suspects)):
        return replace(found, seen=(*found.seen, place))
    found = _without(found, place, isolated=found.isolated)
    trials = found.trials
    if size == 1 and fault.passed:
        trials = (*trials, (place, fault.rank))
    return replace(found, suspects=(*found.suspects, place), trials=trials)


def _without(
    found: Findings, place: TaskSpan, isolated: tuple[tuple[TaskSpan, Fault], ...]
) -> Findings:
    """Return the findings without spans that contain `place`, and with new `isolated` items."""
    return Findings(
        tuple(span for span in found.seen if not span.holds(place)),
        tuple(span for span in found.suspects if not span.holds(place)),
        tuple(pair for pair in found.trials if pair[0] != place),
        isolated,
    )


def decide(
    own: Sequence[Fault], before: Findings, after: Findings, policy: RestartPolicy
) -> Decision:
    """Return the action after the last failure of a worker, and the delay before this action.

    Parameters
    ----------
    own
        All failures of this worker, in order of time.
    before, after
        Return values of `findings` for all workers, without and with the last failure.
    """
    if own[-1].permanent or policy.max_restarts == 0:
        return Decision(Action.GIVE_UP, 0.0)
    recent = _since_the_last_gain(own, after)
    in_vain = sum(not _narrows(recent[: number + 1]) for number in range(len(recent)))
    most_deaths = _max_search_deaths(recent) + policy.max_restarts
    if in_vain > policy.max_restarts or len(recent) > most_deaths:
        return Decision(Action.GIVE_UP, 0.0)
    delay = 0.0
    if recent and not _narrows(recent):
        longer = policy.first_delay * 2.0 ** min(in_vain - 1, 64)
        delay = min(policy.longest_delay, longer)
    if len(after.isolated) > len(before.isolated):
        return Decision(Action.QUARANTINE, delay)
    if {*after.suspects} - {*before.suspects} or {*after.trials} - {*before.trials}:
        return Decision(Action.NARROW, delay)
    return Decision(Action.RESTART, delay)


def _since_the_last_gain(own: Sequence[Fault], found: Findings) -> Sequence[Fault]:
    """Return the failures in `own` after the worker's last progress.

    Progress means more computed rows, or a new item in ``found.isolated``.
    """
    isolated = [fault for _, fault in found.isolated]
    recent: list[Fault] = []
    done = 0
    for fault in own:
        gained = fault.done > done or fault in isolated
        recent = [] if gained else [*recent, fault]
        done = max(done, fault.done)
    return recent


def _narrows(faults: Sequence[Fault]) -> bool:
    """Return whether the last of the `faults` leaves fewer items as possible causes.

    The span of a fault is the range of items that the worker processed when it died. True if the
    worker finished some items first, and the last span is a part of the span of an earlier fault.
    """
    *earlier, last = faults
    if not (last.place and last.passed):
        return False
    place = TaskSpan(*last.place)
    around = [TaskSpan(*fault.place) for fault in earlier if fault.place]
    return any(span.holds(place) and span != place for span in around)


def _max_search_deaths(faults: Sequence[Fault]) -> int:
    """Return the maximum number of deaths that the search for one faulty item may cause.

    The number depends on the largest span of the `faults`, which the search splits into halves.
    """
    sizes = [fault.place[3] - fault.place[2] for fault in faults if fault.place]
    return 4 + 2 * math.ceil(math.log2(max([2, *sizes])))

"""Which workers are silent for too long, and what is done about them. Pure: the time is told.

A worker that hangs is asked for its stacks, then asked to end, then killed. One that makes progress
before it is asked to end is let off.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from virnucpro.runtime.deadlines import NEVER, Deadlines, limit_of
from virnucpro.runtime.status import WorkerStatus

__all__ = ["Graces", "Measure", "Step", "Watchdog"]


class Measure(StrEnum):
    """What is done to a worker that hangs, in this order."""

    ASK_FOR_STACKS = "ask for stacks"
    TERMINATE = "terminate"
    KILL = "kill"
    ABANDON = "abandon"
    """It outlives SIGKILL, stuck in the kernel: nobody waits for it any more."""


_LADDER = tuple(Measure)


@dataclass(frozen=True, slots=True)
class Graces:
    """Seconds between one measure and the next."""

    stacks: float
    terminate: float
    kill: float

    def after(self, measure: Measure) -> float:
        """Seconds that a worker has after `measure`."""
        return {
            Measure.ASK_FOR_STACKS: self.stacks,
            Measure.TERMINATE: self.terminate,
            Measure.KILL: self.kill,
        }[measure]


class Step(NamedTuple):
    """What to do about one worker now, and why."""

    rank: int
    measure: Measure
    why: str


@dataclass(slots=True)
class _Silence:
    """`rung`: the measure that comes next; `due`: when, where it does not follow from a limit."""

    since: float
    rung: int = 0
    due: float = 0.0


class Watchdog:
    """Knows since when each worker has been silent.

    Parameters
    ----------
    deadlines
        Longest silences.
    graces
        What a worker gets between one measure and the next.
    """

    def __init__(self, deadlines: Deadlines, graces: Graces) -> None:
        self._deadlines = deadlines
        self._graces = graces
        self._silences: dict[int, _Silence] = {}

    @property
    def idle(self) -> bool:
        """Nobody can be late, and nobody is being ended."""
        return self._deadlines == NEVER and not any(one.rung for one in self._silences.values())

    def begin(self, rank: int, now: float) -> None:
        """Watch a worker that has been started."""
        self._silences[rank] = _Silence(now)

    def heard(self, rank: int, now: float) -> bool:
        """Note a worker's progress; say whether it was about to be ended for want of it."""
        silence = self._silences[rank]
        if silence.rung > 1:
            return False
        self._silences[rank] = _Silence(now)
        return silence.rung == 1

    def dismiss(self, rank: int) -> None:
        """Have a worker ended that is not late, from SIGTERM on."""
        self._silences[rank] = _Silence(0.0, _LADDER.index(Measure.TERMINATE))

    def forget(self, rank: int) -> None:
        """Watch a worker no more."""
        self._silences.pop(rank, None)

    def excuse(self, seconds: float) -> None:
        """Charge nobody with a time in which the watch itself did not run: a stopped machine."""
        for silence in self._silences.values():
            silence.since += seconds
            silence.due += seconds

    def steps(self, statuses: Mapping[int, WorkerStatus], now: float) -> list[Step]:
        """Say what is to be done by the time `now`; each measure is said once."""
        due = []
        for rank, silence in self._silences.items():
            limit, doing = limit_of(statuses[rank], self._deadlines)
            when = silence.due if silence.rung else _end_of(silence.since, limit)
            if silence.rung < len(_LADDER) and now >= when:
                measure = _LADDER[silence.rung]
                due.append(Step(rank, measure, f"{doing} within {limit} s"))
                silence.rung += 1
                silence.due = now + (
                    0.0 if measure is Measure.ABANDON else self._graces.after(measure)
                )
        return due


def _end_of(since: float, limit: float | None) -> float:
    return float("inf") if limit is None else since + limit

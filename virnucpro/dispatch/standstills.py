"""Which workers get no further with the tasks that they have. Pure: the time is told.

Who waits for the parent is not among them. A worker waits when there is something of it to be read,
or room for the rest of its task, and the poll names its pipe then: bytes that flow are progress,
bytes that the parent leaves lying are its own delay. Who waits for room in the ring has told of all
that fills it: that, too, is something to be read.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from virnucpro.runtime.watchdog import Measure, Step

__all__ = ["STACKS_GRACE_S", "Pulse", "Standstills"]

STACKS_GRACE_S = 1.0
"""Seconds that a worker which stands still has to write its stacks, before it is killed."""

_LONGEST_TICK_S = 1.0
_TICKS = 10
"""Looks within one deadline, at least."""

_AWAY = 0.5
"""Most of a limit that one absence of the parent takes. Who stopped the parent in a callback may
have stopped the workers as well: they have the rest of it to show themselves."""


class Pulse(NamedTuple):
    """What tells a worker that gets on from one that does not: any change of it is progress.

    Attributes
    ----------
    answered
        Tasks answered so far.
    begun
        Number of the task that it runs; negative between tasks.
    progressed
        When it said last that it gets on, by its own clock: nothing but another number here.
    """

    answered: int
    begun: int
    progressed: float


@dataclass(slots=True)
class _Standstill:
    """`since`: when the worker got on last or, once it was asked for its stacks, when that was."""

    pulse: Pulse
    since: float
    asked: bool = False


class Standstills:
    """Knows since when each worker at work has stood still.

    Parameters
    ----------
    limit
        Longest standstill in seconds; None for as long as it takes.

    Attributes
    ----------
    tick
        Longest sleep in seconds between two looks; None for any.
    """

    def __init__(self, limit: float | None) -> None:
        self._limit = limit
        self._standstills: dict[int, _Standstill] = {}
        self._looked_at = 0.0
        self.tick = None if limit is None else min(_LONGEST_TICK_S, limit / _TICKS)

    def steps(self, pulses: Mapping[int, Pulse], now: float, away: float = 0.0) -> list[Step]:
        """Say what is to be done about whom; to be asked whenever the parent has slept.

        Charged is the time in which the parent slept as long as it meant to, and what it did
        before, a callback for example: the workers had that time, too. Whatever is beyond that is
        the time of a machine that stood still.

        Parameters
        ----------
        pulses
            Of the workers that have tasks, and wait for nothing from the parent. One that is
            missing has no deadline, and begins anew with its next pulse.
        now
            When the parent woke, in seconds of a monotonic clock.
        away
            Seconds from the last look on in which it did not sleep.
        """
        if self._limit is None or self.tick is None:
            return []
        slept = now - self._looked_at - away
        excused = max(0.0, away - self._limit * _AWAY) + max(0.0, slept - 2 * self.tick)
        self._looked_at = now
        self._standstills = {
            worker_id: self._after(worker_id, pulse, excused, now)
            for worker_id, pulse in pulses.items()
        }
        steps = [self._step(*one, now) for one in self._standstills.items()]
        return [step for step in steps if step is not None]

    def _after(self, worker_id: int, pulse: Pulse, excused: float, now: float) -> _Standstill:
        standstill = self._standstills.get(worker_id)
        if standstill is None or standstill.pulse != pulse:
            return _Standstill(pulse, now)
        standstill.since += excused
        return standstill

    def _step(self, worker_id: int, standstill: _Standstill, now: float) -> Step | None:
        assert self._limit is not None
        if now < standstill.since + (STACKS_GRACE_S if standstill.asked else self._limit):
            return None
        measure = Measure.KILL if standstill.asked else Measure.ASK_FOR_STACKS
        standstill.asked, standstill.since = True, now
        return Step(worker_id, measure, f"it made no progress within {self._limit} s")

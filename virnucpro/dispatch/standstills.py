"""Which workers get no further with the tasks that they have. Pure: the time is told."""

from collections.abc import Mapping
from typing import NamedTuple

from virnucpro.runtime.deadlines import Deadlines
from virnucpro.runtime.hangs import Graces, HangWatch, Step
from virnucpro.runtime.status import WorkerState, WorkerStatus

__all__ = ["STACKS_GRACE_S", "Pulse", "Standstills"]

STACKS_GRACE_S = 1.0
"""Seconds that a worker which stands still has to write its stacks, before it is killed."""

_LONGEST_TICK_S = 1.0
_TICKS = 10
"""Looks within one deadline, at least."""


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


class Standstills:
    """Knows since when each worker at work has stood still.

    A worker is charged only with time in which it was looked at: not with that in which the parent
    was stopped, or busy with a callback.

    Parameters
    ----------
    limit
        Longest standstill in seconds; None for as long as it takes.
    """

    def __init__(self, limit: float | None) -> None:
        self._hangs = HangWatch(Deadlines(progress=limit), Graces(STACKS_GRACE_S, 0.0, 0.0))
        self._pulses: dict[int, Pulse] = {}
        self._looked_at = 0.0
        self.tick = None if limit is None else min(_LONGEST_TICK_S, limit / _TICKS)

    def steps(self, pulses: Mapping[int, Pulse], now: float) -> list[Step]:
        """Say what is to be done about whom; to be asked every `tick` seconds, or more often.

        Parameters
        ----------
        pulses
            Of the workers that have tasks. One that is missing has no deadline.
        now
            Seconds of a monotonic clock.
        """
        if self.tick is not None:
            self._hangs.excuse(max(0.0, now - self._looked_at - 2 * self.tick))
        self._looked_at = now
        for worker_id in self._pulses.keys() - pulses.keys():
            self._hangs.forget(worker_id)
        for worker_id, pulse in pulses.items():
            if worker_id not in self._pulses:
                self._hangs.begin(worker_id, now)
            elif pulse != self._pulses[worker_id]:
                self._hangs.heard(worker_id, now)
        self._pulses = dict(pulses)
        return self._hangs.steps({worker_id: _at_work(worker_id) for worker_id in pulses}, now)


def _at_work(worker_id: int) -> WorkerStatus:
    """Give the status of a worker that has begun to work: the deadline of those is progress."""
    return WorkerStatus(worker_id, WorkerState.RUNNING, None, 0.0, 0.0, begun={0: 1})

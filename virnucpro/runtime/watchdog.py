"""Deadlines of workers that make no progress. Pure: the caller gives the time."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

__all__ = ["NEVER", "STACKS_GRACE_S", "Deadlines", "Watchdog", "Watched"]

STACKS_GRACE_S = 0.5
"""Seconds that a late worker has to write its stacks before it is ended."""

_LONGEST_TICK_S = 1.0
_TICKS = 10
"""Minimum number of checks within one deadline."""

_AWAY = 0.5
"""Largest share of a deadline that one absence of the parent uses up. If the parent was stopped
in a callback, its workers may have been stopped too: they keep the rest of the deadline."""


@dataclass(frozen=True, slots=True)
class Deadlines:
    """Longest times of a rank without progress, in seconds; None for no limit.

    Attributes
    ----------
    start
        From the start of the process to its first mark: imports, loading of weights. Earlier
        progress messages restart it.
    progress
        From one progress message to the next: longer than the longest piece of work.
    stop
        From the return of the worker's function to the end of its process.
    """

    start: float | None = None
    progress: float | None = None
    stop: float | None = None


NEVER = Deadlines()
"""No deadlines."""


class Watched(NamedTuple):
    """One deadline of one worker.

    Attributes
    ----------
    rank
        The worker.
    fault
        The error message for a late worker, such as ``it did not set up``.
    limit
        Seconds.
    sign
        Any value that changes when the worker makes progress.
    """

    rank: int
    fault: str
    limit: float
    sign: object

    @property
    def why(self) -> str:
        """The error message with the limit."""
        return f"{self.fault} within {self.limit:g} s"


@dataclass(slots=True)
class _Silence:
    """`since`: time of the last progress or, once `asked`, of the request for stacks."""

    sign: object
    since: float
    asked: bool = False


class Watchdog:
    """Time since the last progress of each worker.

    Parameters
    ----------
    limits
        All limits that may occur, in seconds.

    Attributes
    ----------
    tick
        Longest sleep in seconds between two checks; None for any.
    """

    def __init__(self, limits: Iterable[float | None]) -> None:
        shortest = min((limit for limit in limits if limit is not None), default=None)
        self.tick = None if shortest is None else min(_LONGEST_TICK_S, shortest / _TICKS)
        self._silences: dict[tuple[int, str], _Silence] = {}
        self._checked_at = 0.0

    def check(
        self, deadlines: Iterable[Watched], now: float, away: float = 0.0
    ) -> list[tuple[Watched, bool]]:
        """Return the workers that are late; call it whenever the parent has slept.

        Time in which the workers could run counts: the parent's intended sleep, and its own work
        before it, such as a callback. Sleep beyond the intended time does not count: the machine
        was suspended.

        Parameters
        ----------
        deadlines
            Those that apply now. A deadline that was absent from a check starts again from zero.
        now
            Time at which the parent woke, in seconds of a monotonic clock.
        away
            Seconds since the last check in which the parent did not sleep.

        Returns
        -------
        Each with False, to be asked for its stacks, and later with True, to be ended.
        """
        if self.tick is None:
            return []
        overslept = max(0.0, now - self._checked_at - away - 2 * self.tick)
        self._checked_at = now
        before, self._silences = self._silences, {}
        overdue = []
        for watched in deadlines:
            key = watched.rank, watched.fault
            silence = before.get(key)
            if silence is None or silence.sign != watched.sign:
                silence = _Silence(watched.sign, now)
            else:
                silence.since += overslept + max(0.0, away - _AWAY * watched.limit)
            self._silences[key] = silence
            if now >= silence.since + (STACKS_GRACE_S if silence.asked else watched.limit):
                overdue.append((watched, silence.asked))
                silence.asked, silence.since = True, now
        return overdue

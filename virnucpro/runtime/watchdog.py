"""Deadlines of workers that make no progress. No I/O: the caller passes the current time."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

STACKS_GRACE_S = 0.5
"""Seconds between the request for the stack traces of a late worker and its termination."""

_LONGEST_TICK_S = 1.0
_TICKS = 10
"""Minimum number of checks within one deadline."""

_AWAY = 0.5
"""Maximum part of a deadline that can pass while the parent is busy, for example in a callback.
If the whole job was suspended then, the workers keep the other half of their deadline."""


@dataclass(frozen=True, slots=True)
class Deadlines:
    """Maximum times of a worker without progress, in seconds; None for no limit.

    Attributes
    ----------
    start
        From the start of the process to its first piece of work; includes imports and the loading
        of weights. A progress message in this time restarts the limit.
    progress
        From one progress message to the next. Choose a limit above the duration of the longest
        piece of work.
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
        Number of the worker.
    fault
        The error message for a late worker, such as ``it did not set up``.
    limit
        The deadline in seconds.
    sign
        A value that changes whenever the worker makes progress. It is compared with its value at
        the previous check.
    """

    rank: int
    fault: str
    limit: float
    sign: object

    @property
    def why(self) -> str:
        """The error message with the deadline, such as ``it made no progress within 60 s``."""
        return f"{self.fault} within {self.limit:g} s"


@dataclass(slots=True)
class _Silence:
    """A period without progress of a worker, from the time `since`.

    If `asked` is true, the period began when the parent requested the worker's stack traces.
    """

    sign: object
    since: float
    asked: bool = False


class Watchdog:
    """Measures the time since the last progress of each worker.

    Parameters
    ----------
    limits
        All deadlines that `check` may get, in seconds.

    Attributes
    ----------
    tick
        Maximum sleep in seconds between two checks; None if there are no deadlines.
    """

    def __init__(self, limits: Iterable[float | None]) -> None:
        shortest = min((limit for limit in limits if limit is not None), default=None)
        self.tick = None if shortest is None else min(_LONGEST_TICK_S, shortest / _TICKS)
        self._silences: dict[tuple[int, str], _Silence] = {}
        self._checked_at = 0.0

    def check(
        self, deadlines: Iterable[Watched], now: float, away: float = 0.0
    ) -> list[tuple[Watched, bool]]:
        """Return the exceeded deadlines. Call this after each sleep of the parent.

        The time without progress includes the planned sleep of the parent. The parent's own work,
        such as a callback, is included up to half of the deadline. If the parent slept longer
        than planned, the machine was suspended: this extra time is not included.

        Parameters
        ----------
        deadlines
            The deadlines that apply now. If a deadline was not passed to the previous check, its
            time starts now.
        now
            Time at which the parent woke, in seconds of a monotonic clock.
        away
            Number of seconds since the last check in which the parent did not sleep.

        Returns
        -------
        Pairs of an exceeded deadline and a flag. False: request the stack traces of the worker.
        True, `STACKS_GRACE_S` later: end the worker.
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

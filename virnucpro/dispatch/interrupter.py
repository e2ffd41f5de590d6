"""In a worker: ends a task from within, for its time limit or because the run stops."""

from collections.abc import Callable
from typing import Any

from virnucpro.dispatch.codec import TIMED_OUT
from virnucpro.runtime.signals import call_on_alarm, call_on_stop, set_alarm

__all__ = ["Interrupter", "TaskInterrupted"]


class TaskInterrupted(BaseException):
    """Raised inside a task that must end. Not an Exception: a task's own handlers let it pass."""


class Interrupter:
    """Owns the alarm (the time limit) and the request to end (the run stops) while tasks are done.

    Parameters
    ----------
    limit
        Seconds that a task may take, or None.

    Attributes
    ----------
    stopping
        Whether the run stops.
    interruptible
        Whether a stop may strike now: not in the middle of a message.
    """

    def __init__(self, limit: float | None) -> None:
        self._limit = limit
        self._inside = False
        self._timed_out = False
        self.stopping = False
        self.interruptible = False
        call_on_alarm(self._on_alarm)
        call_on_stop(self._on_stop)

    def limited(self, process: Callable[[Any], Any]) -> Callable[[Any], Any]:
        """Give `process` the time limit: it then returns `TIMED_OUT` for what takes longer.

        A task that catches the interruption and goes on has still timed out.
        """
        if self._limit is None:
            return process

        def call(data: object) -> object:
            self._timed_out = False
            try:
                result = self._call(process, data)
            except BaseException:
                if not self._timed_out:
                    raise
                return TIMED_OUT
            return TIMED_OUT if self._timed_out else result

        return call

    def work(self, batch: Callable[[], None]) -> None:
        """Do a batch of tasks; return at once when the run stops."""
        self.interruptible = True
        try:
            if not self.stopping:
                batch()
        except TaskInterrupted:
            if not self.stopping:
                raise
        finally:
            self.interruptible = False

    def _call(self, process: Callable[[Any], Any], data: object) -> object:
        assert self._limit is not None
        self._inside = True
        try:
            set_alarm(self._limit)
            return process(data)
        finally:
            # Race: the alarm may strike in this very block; it is spent then.
            self._inside = False
            set_alarm(0)

    def _on_alarm(self) -> None:
        if self._inside:
            self._inside = False
            self._timed_out = True
            raise TaskInterrupted("the task took longer than its time limit")

    def _on_stop(self) -> None:
        first, self.stopping = not self.stopping, True
        if first and self.interruptible:
            raise TaskInterrupted("the run is being stopped")

"""Interrupts the task of a worker at its time limit or when the run stops."""

from collections.abc import Callable
from typing import Any

from virnucpro.dispatch.codec import TIMED_OUT
from virnucpro.runtime.signals import call_on_alarm, call_on_stop, set_alarm

__all__ = ["Interrupter", "TaskInterrupted"]


class TaskInterrupted(BaseException):
    """Error that ends a running task; ``except Exception`` in the task does not catch it."""


class Interrupter:
    """Handles the alarm (time limit of a task) and SIGTERM (the run stops).

    Parameters
    ----------
    limit
        Time limit of a task in seconds; None for no limit.

    Attributes
    ----------
    stopping
        Whether the parent has requested a stop.
    interruptible
        Whether a stop request may interrupt now; False while a message is sent.
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
        """Return a function that calls `process` with the time limit of a task.

        The function returns the result of `process`, or `TIMED_OUT` if the limit is exceeded. It
        returns `TIMED_OUT` even if the task catches `TaskInterrupted` and continues.
        """
        limit = self._limit
        if limit is None:
            return process

        def call(data: object) -> object:
            self._timed_out, self._inside = False, True
            try:
                try:
                    set_alarm(limit)
                    result = process(data)
                finally:
                    # Race: the alarm may come before the next line; the outer block handles it.
                    self._inside = False
                    set_alarm(0)
            except BaseException:
                if not self._timed_out:
                    raise
                return TIMED_OUT
            return TIMED_OUT if self._timed_out else result

        return call

    def run_interruptible(self, batch: Callable[[], None]) -> None:
        """Call the function `batch`, which runs a batch of tasks; SIGTERM interrupts this call."""
        self.interruptible = True
        try:
            if not self.stopping:
                batch()
        except TaskInterrupted:
            if not self.stopping:
                raise
        finally:
            self.interruptible = False

    def _on_alarm(self) -> None:
        if self._inside:
            self._inside = False
            self._timed_out = True
            raise TaskInterrupted("the task exceeded its time limit")

    def _on_stop(self) -> None:
        first, self.stopping = not self.stopping, True
        if first and self.interruptible:
            raise TaskInterrupted("the run is being stopped")

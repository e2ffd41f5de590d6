"""Callback functions of the user for the events of a dispatcher's run."""

import logging
from collections.abc import Callable
from typing import Any

from virnucpro.dispatch.protocol import (
    CleanupFailed,
    Event,
    SetupFailed,
    TaskError,
    TaskRetried,
    TaskStarted,
    TaskSuccess,
    TaskTimeout,
    WorkerDied,
)

__all__ = ["Callbacks"]

_log = logging.getLogger("virnucpro.dispatch")


class Callbacks:
    """The user's functions for the events of a run, called in the thread of `Dispatcher.run`.

    Parameters
    ----------
    on_success
        Called as ``on_success(task_id, result, worker_id)``.
    on_error
        ``on_error(task_id, traceback, worker_id)``: the task raised an exception, could not be
        pickled, or its worker died. ``worker_id`` is None if all workers failed before the task
        could start.
    on_timeout
        ``on_timeout(task_id, timeout, worker_id)``: the task exceeded the limit in seconds.
    on_setup_fail
        ``on_setup_fail(gpu_id, traceback)``: the setup of a worker failed permanently. Other
        workers run all tasks. By default, the failure is logged as a warning.
    on_task_start
        ``on_task_start(task_id, worker_id)``: a worker started an attempt at the task. It is called
        before the callback for the result or the error of the task.
    on_retry
        ``on_retry(task_id, attempts, error, worker_id)``: the worker died during the task, and the
        task is retried. ``attempts`` is the number of failed attempts.
    on_fault
        ``on_fault(event)`` with a `WorkerDied` or `CleanupFailed`. By default, the event is
        logged as a warning.
    """

    def __init__(
        self,
        on_success: Callable[[int, Any, int], object],
        on_error: Callable[[int, str, int | None], object] | None = None,
        on_timeout: Callable[[int, float, int], object] | None = None,
        on_setup_fail: Callable[[int, str], object] | None = None,
        on_task_start: Callable[[int, int], object] | None = None,
        on_retry: Callable[[int, int, str, int], object] | None = None,
        on_fault: Callable[[WorkerDied | CleanupFailed], object] | None = None,
    ) -> None:
        self.on_success = on_success
        self._on_setup_fail = on_setup_fail or _log_setup_failure
        self._on_fault = on_fault or _log_fault
        # Each function is called with the attributes of its event.
        self._functions: dict[type, Callable[..., object] | None] = {
            TaskSuccess: on_success,
            TaskError: on_error,
            TaskTimeout: on_timeout,
            TaskStarted: on_task_start,
            TaskRetried: on_retry,
        }

    def call(self, event: Event) -> None:
        """Call the function for `event`: the user's function, else the default if there is one."""
        if isinstance(event, SetupFailed):
            self._on_setup_fail(event.gpu_id, event.error)
        elif isinstance(event, WorkerDied | CleanupFailed):
            self._on_fault(event)
        elif function := self._functions.get(type(event)):
            function(*(getattr(event, name) for name in event.__match_args__))


def _log_setup_failure(gpu_id: int, error: str) -> None:
    _log.warning("the worker of gpu_id %d failed permanently in its setup: %s", gpu_id, error)


def _log_fault(fault: WorkerDied | CleanupFailed) -> None:
    if isinstance(fault, CleanupFailed):
        _log.warning("the worker of gpu_id %d failed in its cleanup: %s", fault.gpu_id, fault.error)
    else:
        doing = "idle" if fault.task_id is None else f"running task {fault.task_id}"
        _log.warning("worker %d died (%s) while %s", fault.worker_id, fault.exit, doing)

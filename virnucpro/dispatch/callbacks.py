"""The functions that a run calls, and which event goes to which."""

import logging
from collections.abc import Callable
from dataclasses import dataclass
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


@dataclass(frozen=True, slots=True)
class Callbacks:
    """What a run tells, each as it happens, in the thread of the run.

    Attributes
    ----------
    on_success
        Called as ``on_success(task_id, result, worker_id)``.
    on_error
        ``on_error(task_id, traceback, worker_id)``: the task raised, could not be pickled, or its
        worker died; ``worker_id`` is None if no worker was left.
    on_timeout
        ``on_timeout(task_id, timeout, worker_id)``, in seconds.
    on_setup_fail
        ``on_setup_fail(gpu_id, traceback)``; the other workers do its work.
    on_task_start
        ``on_task_start(task_id, worker_id)``, for each attempt, before its answer.
    on_retry
        ``on_retry(task_id, attempts so far, error, worker_id)``: its worker died.
    on_fault
        Called with a `WorkerDied` or `CleanupFailed`; logged as a warning otherwise.
    """

    on_success: Callable[[int, Any, int], object]
    on_error: Callable[[int, str, int | None], object] | None = None
    on_timeout: Callable[[int, float, int], object] | None = None
    on_setup_fail: Callable[[int, str], object] | None = None
    on_task_start: Callable[[int, int], object] | None = None
    on_retry: Callable[[int, int, str, int], object] | None = None
    on_fault: Callable[[WorkerDied | CleanupFailed], object] | None = None

    def tell(self, event: Event) -> None:
        """Call the function for an event, if there is one. Faults of workers are never silent."""
        match event:
            case TaskSuccess():
                self.on_success(event.task_id, event.data, event.worker_id)
            case TaskError():
                if self.on_error:
                    self.on_error(event.task_id, event.error, event.worker_id)
            case TaskTimeout():
                if self.on_timeout:
                    self.on_timeout(event.task_id, event.timeout, event.worker_id)
            case TaskStarted():
                if self.on_task_start:
                    self.on_task_start(event.task_id, event.worker_id)
            case TaskRetried():
                if self.on_retry:
                    self.on_retry(event.task_id, event.attempt, event.error, event.worker_id)
            case _:
                self._tell_of_workers(event)

    def _tell_of_workers(self, event: Event) -> None:
        match event:
            case SetupFailed():
                if self.on_setup_fail:
                    self.on_setup_fail(event.gpu_id, event.error)
                else:
                    _log.warning("gpu_id %d: its worker is given up: %s", event.gpu_id, event.error)
            case WorkerDied() | CleanupFailed() if self.on_fault:
                self.on_fault(event)
            case WorkerDied():
                doing = "idle" if event.task_id is None else f"running task {event.task_id}"
                _log.warning("worker %d died (%s) %s", event.worker_id, event.exit, doing)
            case CleanupFailed():
                _log.warning("gpu_id %d: the clean-up failed: %s", event.gpu_id, event.error)
            case _:
                pass

"""Task dispatcher: runs tasks on persistent worker processes; each task gets one answer.

A worker process imports this file before its module: the names of the parent are imported at their
first use.
"""

from virnucpro.dispatch.worker import BaseWorker, WorkerUnusable
from virnucpro.lazy import imported_at_first_use

TYPE_CHECKING = False
if TYPE_CHECKING:
    from virnucpro.dispatch.dispatcher import Dispatcher
    from virnucpro.dispatch.protocol import (
        CleanupFailed,
        Outcome,
        SetupFailed,
        TaskError,
        TaskStarted,
        TaskSuccess,
        TaskTimeout,
        WorkerDied,
    )

__all__ = [
    "BaseWorker",
    "CleanupFailed",
    "Dispatcher",
    "Outcome",
    "SetupFailed",
    "TaskError",
    "TaskStarted",
    "TaskSuccess",
    "TaskTimeout",
    "WorkerDied",
    "WorkerUnusable",
]


_MODULES = {"Dispatcher": "dispatcher"} | dict.fromkeys(
    (
        *("CleanupFailed", "Outcome", "SetupFailed", "TaskError", "TaskStarted", "TaskSuccess"),
        *("TaskTimeout", "WorkerDied"),
    ),
    "protocol",
)

if not TYPE_CHECKING:  # type checkers would accept every name
    __getattr__ = imported_at_first_use(__name__, _MODULES)

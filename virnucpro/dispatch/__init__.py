"""Task dispatcher: runs tasks on persistent worker processes; each task gets one answer."""

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
from virnucpro.dispatch.worker import BaseWorker, WorkerUnusable

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

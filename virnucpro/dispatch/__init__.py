"""A stream of tasks on persistent workers; each task gets exactly one answer."""

from virnucpro.dispatch.dispatcher import Dispatcher
from virnucpro.dispatch.protocol import (
    CleanupFailed,
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
    "SetupFailed",
    "TaskError",
    "TaskStarted",
    "TaskSuccess",
    "TaskTimeout",
    "WorkerDied",
    "WorkerUnusable",
]

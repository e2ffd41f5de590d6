"""A stream of tasks over workers that stay: each task gets exactly one answer, whatever happens."""

from virnucpro.dispatch.dispatcher import Dispatcher
from virnucpro.dispatch.worker import BaseWorker, WorkerUnusable

__all__ = ["BaseWorker", "Dispatcher", "WorkerUnusable"]

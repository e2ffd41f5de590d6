"""Task counts and worker states of a dispatcher's run."""

from collections import deque
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any

from virnucpro.dispatch.protocol import (
    CleanupFailed,
    Event,
    SetupFailed,
    TaskError,
    TaskRetried,
    TaskSuccess,
    TaskTimeout,
    WorkerDied,
    WorkerReady,
)

__all__ = ["RECENT", "DispatchStats", "WorkerStats"]

RECENT = 8
"""Maximum number of recent errors that the statistics contain, one line each."""


@dataclass(slots=True)
class WorkerStats:
    """Task counts and status of one worker.

    Attributes
    ----------
    status
        ``initializing``, ``idle`` (setup finished, with or without a task), ``restarting``,
        ``error`` (the setup failed permanently) or ``finished``.
    completed, failed, timeouts
        Numbers of answers: results, errors, exceeded time limits.
    retries, deaths
        Numbers of retried tasks, and of deaths of the worker's process.
    """

    status: str = "initializing"
    completed: int = 0
    failed: int = 0
    timeouts: int = 0
    retries: int = 0
    deaths: int = 0


class DispatchStats:
    """Task counts and statuses of all workers of a run.

    Parameters
    ----------
    worker_ids
        Ids of the workers.
    """

    def __init__(self, worker_ids: Iterable[int] = ()) -> None:
        # The key None is for tasks that no worker could run.
        self._by_worker: dict[int | None, WorkerStats] = {one: WorkerStats() for one in worker_ids}
        self._setup_failures = 0
        self._cleanup_failures = 0
        self._recent: deque[str] = deque(maxlen=RECENT)

    def worker_stats(self, worker_id: int | None) -> WorkerStats:
        """Return the counts and the status of one worker.

        If `worker_id` is None, return the counts of tasks that no worker could run.
        """
        return self._by_worker.setdefault(worker_id, WorkerStats())

    def note(self, event: Event) -> None:
        """Add an event to the counts of its worker, and update the status of this worker."""
        counts = self.worker_stats(event.worker_id)
        match event:
            case TaskSuccess():
                counts.completed += 1
            case TaskError(task_id, error):
                counts.failed += 1
                self._recent.append(f"task {task_id}: {_last_line(error)}")
            case TaskTimeout(task_id, timeout):
                counts.timeouts += 1
                self._recent.append(f"task {task_id}: exceeded its limit of {timeout:g} s")
            case TaskRetried(task_id, _, error):
                counts.retries += 1
                self._recent.append(f"task {task_id}, retried: {_last_line(error)}")
            case WorkerReady():
                counts.status = "idle"
            case WorkerDied():
                counts.deaths += 1
                counts.status = "restarting"
            case SetupFailed(_, error, worker_id):
                self._setup_failures += 1
                counts.status = "error"
                self._recent.append(f"worker {worker_id}, setup: {_last_line(error)}")
            case CleanupFailed(_, error, worker_id):
                self._cleanup_failures += 1
                self._recent.append(f"worker {worker_id}, cleanup: {_last_line(error)}")

    def finish(self) -> None:
        """Set the status of each worker to ``finished`` at the end of the run; keep ``error``."""
        for counts in self._by_worker.values():
            if counts.status != "error":
                counts.status = "finished"

    def as_dict(self) -> dict[str, Any]:
        """Return a dict of totals, recent errors, and the counts and status of each worker."""
        by_worker = self._by_worker.copy()
        names = ("completed", "failed", "timeouts", "retries", "deaths")
        return {
            **{name: sum(getattr(one, name) for one in by_worker.values()) for name in names},
            "setup_failures": self._setup_failures,
            "cleanup_failures": self._cleanup_failures,
            "recent": list(self._recent),
            "workers": {
                worker_id: asdict(one)
                for worker_id, one in by_worker.items()
                if worker_id is not None
            },
        }


def _last_line(text: str) -> str:
    return (text.strip().splitlines() or [""])[-1]

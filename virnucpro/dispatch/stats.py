"""Counts and states of a run."""

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

__all__ = ["RECENT", "DispatchStats", "Share"]

RECENT = 8
"""Number of the last errors that are kept, one line each."""


@dataclass(slots=True)
class Share:
    """One worker's counts.

    Attributes
    ----------
    status
        ``initializing``, ``idle`` (or busy), ``restarting``, ``error`` (its setup failed) or
        ``finished``.
    """

    status: str = "initializing"
    completed: int = 0
    failed: int = 0
    timeouts: int = 0
    retries: int = 0
    deaths: int = 0


class DispatchStats:
    """The counts of all workers.

    Parameters
    ----------
    worker_ids
        The workers.
    """

    def __init__(self, worker_ids: Iterable[int] = ()) -> None:
        # None: tasks for which no worker was left.
        self._shares: dict[int | None, Share] = {one: Share() for one in worker_ids}
        self._setup_failures = 0
        self._cleanup_failures = 0
        self._recent: deque[str] = deque(maxlen=RECENT)

    def share(self, worker_id: int | None) -> Share:
        """Return a worker's counts."""
        return self._shares.setdefault(worker_id, Share())

    def note(self, event: Event) -> None:
        """Count an event."""
        share = self.share(event.worker_id)
        match event:
            case TaskSuccess():
                share.completed += 1
            case TaskError(task_id, error):
                share.failed += 1
                self._recent.append(f"task {task_id}: {_last_line(error)}")
            case TaskTimeout(task_id, timeout):
                share.timeouts += 1
                self._recent.append(f"task {task_id}: exceeded its limit of {timeout:g} s")
            case TaskRetried(task_id, _, error):
                share.retries += 1
                self._recent.append(f"task {task_id}, retried: {_last_line(error)}")
            case WorkerReady():
                share.status = "idle"
            case WorkerDied():
                share.deaths += 1
                share.status = "restarting"
            case SetupFailed(_, error, worker_id):
                self._setup_failures += 1
                share.status = "error"
                self._recent.append(f"worker {worker_id}, setup: {_last_line(error)}")
            case CleanupFailed(_, error, worker_id):
                self._cleanup_failures += 1
                self._recent.append(f"worker {worker_id}, cleanup: {_last_line(error)}")

    def finish(self) -> None:
        """Note the end of the run."""
        for share in self._shares.values():
            if share.status != "error":
                share.status = "finished"

    def as_dict(self) -> dict[str, Any]:
        """Return all counts as plain data."""
        shares = self._shares.copy()
        names = ("completed", "failed", "timeouts", "retries", "deaths")
        return {
            **{name: sum(getattr(one, name) for one in shares.values()) for name in names},
            "setup_failures": self._setup_failures,
            "cleanup_failures": self._cleanup_failures,
            "recent": list(self._recent),
            "workers": {
                worker_id: asdict(one) for worker_id, one in shares.items() if worker_id is not None
            },
        }


def _last_line(text: str) -> str:
    return (text.strip().splitlines() or [""])[-1]

"""What has happened in a run so far."""

from collections import deque
from dataclasses import asdict, dataclass, field
from typing import Any

from virnucpro.dispatch.protocol import (
    CleanupFailed,
    Event,
    SetupFailed,
    TaskError,
    TaskRetried,
    TaskTimeout,
    WorkerDied,
    WorkerReady,
)

__all__ = ["RECENT", "DispatchStats", "Share"]

RECENT = 8
"""How many of the last troubles are kept, a line each."""


@dataclass(slots=True)
class Share:
    """One worker's part.

    Attributes
    ----------
    status
        ``initializing``, ``idle`` (or at work), ``restarting``, ``error`` (its set-up failed) or
        ``finished``.
    """

    status: str = "initializing"
    completed: int = 0
    failed: int = 0
    timeouts: int = 0
    retries: int = 0
    deaths: int = 0


@dataclass(slots=True)
class DispatchStats:
    """All workers' parts, by worker id; None stands for tasks that no worker was left for."""

    shares: dict[int | None, Share] = field(default_factory=dict)
    setup_failures: int = 0
    cleanup_failures: int = 0
    recent: deque[str] = field(default_factory=lambda: deque(maxlen=RECENT))

    def share(self, worker_id: int | None) -> Share:
        """Return a worker's part."""
        return self.shares.setdefault(worker_id, Share())

    def note(self, event: Event) -> None:
        """Count an event, of those that are no success."""
        match event:
            case TaskError():
                self.share(event.worker_id).failed += 1
                self.recent.append(f"task {event.task_id}: {_gist(event.error)}")
            case TaskTimeout():
                self.share(event.worker_id).timeouts += 1
                self.recent.append(f"task {event.task_id}: took longer than {event.timeout:g} s")
            case TaskRetried():
                self.share(event.worker_id).retries += 1
                self.recent.append(f"task {event.task_id}, again: {_gist(event.error)}")
            case _:
                self._note_worker(event)

    def _note_worker(self, event: Event) -> None:
        match event:
            case WorkerReady():
                self.share(event.worker_id).status = "idle"
            case WorkerDied():
                share = self.share(event.worker_id)
                share.deaths += 1
                share.status = "restarting"
            case SetupFailed():
                self.setup_failures += 1
                self.share(event.worker_id).status = "error"
                self.recent.append(f"worker {event.worker_id}, set-up: {_gist(event.error)}")
            case CleanupFailed():
                self.cleanup_failures += 1
                self.recent.append(f"worker {event.worker_id}, clean-up: {_gist(event.error)}")
            case _:
                pass

    def finish(self) -> None:
        """Note that the run is over."""
        for share in self.shares.values():
            if share.status != "error":
                share.status = "finished"

    def as_dict(self) -> dict[str, Any]:
        """Give everything as plain data."""
        shares = self.shares.copy()
        names = ("completed", "failed", "timeouts", "retries", "deaths")
        return {
            **{name: sum(getattr(one, name) for one in shares.values()) for name in names},
            "setup_failures": self.setup_failures,
            "cleanup_failures": self.cleanup_failures,
            "recent": list(self.recent),
            "workers": {
                worker_id: asdict(one) for worker_id, one in shares.items() if worker_id is not None
            },
        }


def _gist(text: str) -> str:
    """Give the line of a traceback that says the most: the last one."""
    return (text.strip().splitlines() or [""])[-1]

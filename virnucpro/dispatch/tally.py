"""What has happened in a run so far, in numbers."""

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
)

__all__ = ["Share", "Tally"]


@dataclass(slots=True)
class Share:
    """One worker's part."""

    completed: int = 0
    failed: int = 0
    timeouts: int = 0
    retries: int = 0
    deaths: int = 0


@dataclass(slots=True)
class Tally:
    """All workers' parts. Tasks that no worker was left for are those of worker -1."""

    shares: dict[int, Share] = field(default_factory=dict)
    setup_failures: int = 0
    cleanup_failures: int = 0

    def share(self, worker_id: int) -> Share:
        """Give a worker's part."""
        return self.shares.setdefault(worker_id, Share())

    def note(self, event: Event) -> None:
        """Count an event, of those that are no success."""
        match event:
            case TaskError():
                self.share(event.worker_id).failed += 1
            case TaskTimeout():
                self.share(event.worker_id).timeouts += 1
            case TaskRetried():
                self.share(event.worker_id).retries += 1
            case WorkerDied():
                self.share(event.worker_id).deaths += 1
            case SetupFailed():
                self.setup_failures += 1
            case CleanupFailed():
                self.cleanup_failures += 1
            case _:
                pass

    def total(self, name: str) -> int:
        """Sum one number over all workers."""
        return sum(getattr(share, name) for share in self.shares.copy().values())

    def as_dict(self) -> dict[str, Any]:
        """Everything, as plain data."""
        names = ("completed", "failed", "timeouts", "retries", "deaths")
        return {
            **{name: self.total(name) for name in names},
            "setup_failures": self.setup_failures,
            "cleanup_failures": self.cleanup_failures,
            "workers": {worker: asdict(one) for worker, one in self.shares.copy().items()},
        }

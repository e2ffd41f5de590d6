"""status.json: the states of a run's ranks, for other processes."""

import json
import os
import time
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from virnucpro.durable import write_file
from virnucpro.run_dir import RunDirectory
from virnucpro.runtime.status import WorkerStatus

__all__ = ["write_status"]


def write_status(run: RunDirectory, statuses: Mapping[int, WorkerStatus], *, running: bool) -> None:
    """Write status.json atomically.

    Raises
    ------
    OSError
        If it cannot be written. No other file depends on it.
    """
    content = {
        "running": running,
        "pid": os.getpid(),
        "ranks": {str(rank): _plain(status) for rank, status in statuses.items()},
    }
    with write_file(run.status_json, lasting=False) as stream:
        stream.write(json.dumps(content, indent=2).encode() + b"\n")


def _plain(status: WorkerStatus) -> dict[str, Any]:
    """Return a status with durations instead of this machine's clock readings."""
    now = time.monotonic()
    content = asdict(status)
    for reading in ("started_at", "last_heartbeat", "began_at", "ended_at"):
        del content[reading]
    end = now if status.ended_at is None else status.ended_at
    return content | {
        "seconds": round(end - status.started_at, 1),
        "silent_seconds": 0.0 if status.ended else round(now - status.last_heartbeat, 1),
    }

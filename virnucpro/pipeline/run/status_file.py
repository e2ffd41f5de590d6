"""status.json: the states of a run's ranks, for other processes."""

import json
import os
import time
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from virnucpro.durable import write_file
from virnucpro.pipeline.jobs.job import Reporter
from virnucpro.run_dir import RunDirectory
from virnucpro.runtime.status import WorkerStatus

__all__ = ["StatusFile"]


class StatusFile:
    """Write status.json; a failure is one warning, because nothing depends on the file."""

    def __init__(self, run: RunDirectory, reporter: Reporter) -> None:
        self._run = run
        self._reporter = reporter
        self._complained = False

    def write(self, statuses: Mapping[int, WorkerStatus], *, running: bool) -> None:
        """Write the ranks' states, if possible."""
        content = {
            "running": running,
            "pid": os.getpid(),
            "ranks": {str(rank): _plain(status) for rank, status in statuses.items()},
        }
        try:
            with write_file(self._run.status_json, lasting=False) as stream:
                stream.write(json.dumps(content, indent=2).encode() + b"\n")
        except OSError as error:
            if not self._complained:
                self._reporter.warn(f"{self._run.status_json} cannot be written: {error.strerror}")
            self._complained = True


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

"""status.json: where the ranks of a run stand, for other processes to read."""

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
    """status.json, which informs and decides nothing: a run goes on without it, and says so once.

    What keeps it from being written (a full disk, a lost mount) keeps segments from it too, and
    the ranks tell that with the bytes that they need.
    """

    def __init__(self, run: RunDirectory, reporter: Reporter) -> None:
        self._run = run
        self._reporter = reporter
        self._complained = False

    def write(self, statuses: Mapping[int, WorkerStatus], *, running: bool) -> None:
        """Write down where the ranks stand, if that can be."""
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
                self._reporter.warn(f"{self._run.status_json} is out of date: {error.strerror}")
            self._complained = True


def _plain(status: WorkerStatus) -> dict[str, Any]:
    """Give a status without clock readings, which mean nothing to another process."""
    now = time.monotonic()
    content = asdict(status)
    for reading in ("started_at", "last_heartbeat", "began_at", "ended_at"):
        del content[reading]
    end = now if status.ended_at is None else status.ended_at
    return content | {
        "seconds": round(end - status.started_at, 1),
        "silent_seconds": 0.0 if status.ended else round(now - status.last_heartbeat, 1),
    }

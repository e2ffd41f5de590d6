"""Files that the coordinator of a launch writes: event log and status.json."""

import json
import os
import socket
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any, Self

from virnucpro.console import output_failure
from virnucpro.durable import write_file
from virnucpro.run.reporter import Reporter, Workload
from virnucpro.run_dir import RunDirectory
from virnucpro.runtime.events import EventLog
from virnucpro.runtime.status import WorkerStatus


class CoordinatorLog:
    """Event log of a run: the file ``run/logs/coordinator.log``.

    The class is a context manager: an exception in the block is logged. If a signal stopped the
    run, the name of the signal is logged.

    Parameters
    ----------
    reporter
        Receives failures as warnings, and other events as stages.
    """

    def __init__(self, run: RunDirectory, reporter: Reporter) -> None:
        self._run = run
        self._reporter = reporter
        self._log = EventLog(run.coordinator_log)
        self._output_failed = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        self.check_output()
        if isinstance(error, Exception):
            self._log.write(f"the run failed: {type(error).__name__}: {error}")
        elif error is not None:
            self._log.write(f"the run was stopped by {str(error) or type(error).__name__}")

    def check_output(self) -> None:
        """Log the last failed write to standard error, if any; at most once per launch."""
        failure = output_failure()
        if failure and not self._output_failed:
            self._log.write(f"progress cannot be printed ({failure}); the run continues")
            self._output_failed = True

    def launch_started(
        self, launch: int, units: int, devices: Sequence[str], work: Workload
    ) -> None:
        """Log the start of the launch with number `launch`, and its number of units."""
        self._run.logs.mkdir(exist_ok=True)
        text = f"computing {units:,} units on {len(devices)} workers"
        self._reporter.computing(work)
        self._log.write(f"launch {launch}: {text} ({', '.join(devices)})")

    def rank_ended(self, status: WorkerStatus) -> None:
        """Log that a rank has computed all units assigned to it, or was stopped."""
        text = f"worker {status.rank}: {status.state} at {status.done:,}/{status.total:,} rows"
        if status.reason:
            text += f": {status.reason}"
        self._log.write(text)

    def rank_failed(self, status: WorkerStatus, next_step: str) -> None:
        """Log the failure of a rank; `next_step` states whether the rank is restarted."""
        attempt = f" (attempt {status.attempt})" if status.attempt > 1 else ""
        text = f"worker {status.rank} failed{attempt}: {status.reason}"
        log = self._run.log(status.rank).relative_to(self._run.root)
        self._reporter.warn(f"{text} (see {log}); {next_step}")
        self._log.write(f"{text}; {next_step}")

    def units_taken(self, rank: int, owner: int) -> None:
        """Log that a rank without units of its own begins with those of the rank `owner`."""
        text = f"worker {rank} takes over work of worker {owner}"
        self._log.write(text)

    def launch_ended(self, launch: int, seconds: float, failures: int) -> None:
        """Log the end of the launch with number `launch`, and the number of failures."""
        self._log.write(
            f"launch {launch} ended after {seconds:.1f} s with {failures:,} worker failures"
        )


def write_status(run: RunDirectory, statuses: Mapping[int, WorkerStatus], *, running: bool) -> None:
    """Write status.json atomically: the status of each rank, and whether ranks are `running`.

    Raises
    ------
    OSError
        If status.json cannot be written. No other file depends on status.json.
    """
    content = {
        "running": running,
        "host": socket.gethostname(),
        "pid": os.getpid(),
        "ranks": {str(rank): _plain(status) for rank, status in statuses.items()},
    }
    with write_file(run.status_json, lasting=False) as stream:
        stream.write(json.dumps(content, indent=2).encode() + b"\n")


def _plain(status: WorkerStatus) -> dict[str, Any]:
    """Return the status of a rank as plain data for JSON.

    Times of the monotonic clock are replaced by durations in seconds, because they have no meaning
    for other processes. Nor have questions.
    """
    now = time.monotonic()
    content = asdict(status)
    for passing in ("started_at", "last_heartbeat", "began_at", "ended_at", "asked", "answered"):
        del content[passing]
    end = now if status.ended_at is None else status.ended_at
    return content | {
        "seconds": round(end - status.started_at, 1),
        "silent_seconds": 0.0 if status.ended else round(now - status.last_heartbeat, 1),
    }

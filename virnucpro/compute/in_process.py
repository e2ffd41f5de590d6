"""Run a rank inside the calling process, for `predict.run_in_process`."""

import os
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from importlib import import_module
from typing import TYPE_CHECKING, Any, Self

from virnucpro.compute.rank_main import Assignment, RankTask, Share, rank_modules, run_rank
from virnucpro.compute.scheduler import RankReports, Show
from virnucpro.run.coordinator_files import CoordinatorLog
from virnucpro.runtime.messages import Failure, Mark, Message, Progress
from virnucpro.runtime.policy import Findings
from virnucpro.runtime.status import WorkerState, WorkerStatus, after_message

if TYPE_CHECKING:
    from virnucpro.compute.rank_encoder import Models

_SHOW_S = 0.5
"""Minimum seconds between two calls of `show`."""

BEAT_S = 0.1
"""Seconds between two measurements of the CPU time of the watched thread."""

WORK_S = 0.05
"""CPU seconds between two progress reports.

The value is larger than the CPU time of a signal handler that prints stack traces, and smaller
than the CPU time to read ten million bases.
"""


class CpuHeartbeat:
    """Context manager that calls `progressed` while the thread of the ``with`` block computes.

    A second thread measures the CPU time of this thread, and calls `progressed` after every
    `WORK_S` seconds of CPU time. A thread that waits for a disk, a lock or a network uses no CPU
    time. If the process is stopped, or the interpreter lock is never released, `progressed` is not
    called. An endless loop in Python uses CPU time, so it is not detected as a hang.

    Parameters
    ----------
    progressed
        Function without arguments; a separate thread calls it.

    Attributes
    ----------
    paused
        If True, the second thread does not call `progressed`, because the thread of the ``with``
        block does.
    """

    def __init__(self, progressed: Callable[[], object]) -> None:
        self.progressed = progressed
        self.paused = False
        self._over = threading.Event()

    def __enter__(self) -> Self:
        clock = time.pthread_getcpuclockid(threading.get_ident())
        self._thread = threading.Thread(
            target=self._measure, args=(clock,), name="virnucpro-heartbeat", daemon=True
        )
        self._thread.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self._over.set()
        self._thread.join()

    def _measure(self, clock: int) -> None:
        reported = time.clock_gettime(clock)
        while not self._over.wait(BEAT_S):
            used = time.clock_gettime(clock)
            if used - reported > WORK_S and not self.paused:
                reported = used
                self.progressed()


class InProcessRank:
    """Executor of one rank, in this process. Its error is raised; it is not restarted.

    Parameters
    ----------
    models
        Encoders and classifier of the job; None to load them when the rank starts.
    heartbeat
        Heartbeat of this process; paused while the rank itself reports progress.
    task, shares
        Parameters of the rank, and its share, which has the key 0.

    Attributes
    ----------
    reports
        Reports and failures of the rank.
    """

    def __init__(
        self,
        models: "Models | None",
        heartbeat: CpuHeartbeat,
        task: RankTask,
        shares: Mapping[int, Share],
        log: CoordinatorLog,
    ) -> None:
        now = time.monotonic()
        self.reports = RankReports()
        self._task = task
        self._models = models
        self._heartbeat = heartbeat
        self._shares = shares
        self._log = log
        self._units = iter(shares[0].units)
        self._status = WorkerStatus(0, WorkerState.RUNNING, os.getpid(), now, now)
        self._show: Show = lambda _: None
        self._next_show = now

    @property
    def statuses(self) -> Mapping[int, WorkerStatus]:
        """Return the status of the only rank, with rank number 0 as the key."""
        return {0: self._status}

    def run(self, show: Show) -> None:
        """Compute the units in this process; `show` is called about twice a second."""
        self._show = show
        # Imported by the rank, they would freeze all objects of this process (gc.freeze).
        for name in rank_modules(self._task):
            import_module(name)
        self._heartbeat.paused = True
        try:
            run_rank(0, 1, self, self._task, self._shares, self._models)
        except BaseException as error:
            self._take(Failure(type(error).__name__, str(error), ""))
            failed = isinstance(error, Exception)  # SystemExit means: stop
            self._end(WorkerState.FAILED if failed else WorkerState.STOPPED)
            raise
        finally:
            self._heartbeat.paused = False
        self._end(WorkerState.SUCCEEDED)

    def close(self) -> None:
        """Log the end of the rank."""
        if self._status.state is not WorkerState.FAILED:
            self._log.rank_ended(self._status)
            return
        self.reports.faults.append(self._status.fault)
        left = len(self._shares[0].units) - len(self.reports.committed.get(0, ()))
        self._log.rank_failed(self._status, f"failed permanently; {left:,} of its units are left")

    def ask(self) -> Assignment | None:
        """Return the next unit of the share; None after the last one."""
        unit = next(self._units, None)
        return None if unit is None else Assignment(unit, Findings())

    def put(self, payload: Mapping[str, Any]) -> None:
        """Take a report of the rank."""
        self.reports.take(payload)

    def progress(self, done: int, total: int) -> None:
        """Record in the status of the rank that `done` of `total` rows are finished."""
        self._take(Progress(done, total))
        if self._status.last_heartbeat >= self._next_show:
            self._next_show = self._status.last_heartbeat + _SHOW_S
            self._show(self.statuses)

    def mark(self, place: tuple[int, ...]) -> None:
        """Record in the rank's status `place`: unit, stage and rows that are computed next."""
        self._take(Mark(place))

    def _take(self, message: Message) -> None:
        self._heartbeat.progressed()
        self._status = after_message(self._status, message, time.monotonic())

    def _end(self, state: WorkerState) -> None:
        self._status = replace(self._status, state=state, ended_at=time.monotonic(), place=())

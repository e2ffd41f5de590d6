"""Run a rank inside the calling process, for `predict.run_in_process`."""

import os
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from importlib import import_module
from typing import TYPE_CHECKING, Any, Self

from virnucpro.runtime.messages import Failure, Mark, Message, Progress
from virnucpro.runtime.status import WorkerState, WorkerStatus, after_message

if TYPE_CHECKING:
    from virnucpro.compute.rank_encoder import Models

_STEP_S = 0.5
"""Minimum seconds between two scheduler steps that progress reports trigger."""

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
    """One rank that runs in this process.

    The class has the methods of `GPUProcessCoordinator` that `RankLaunch` and `RankScheduler` call,
    except those that restart or stop a rank: the error of this rank is raised instead.

    Parameters
    ----------
    models
        Encoders and classifier of the job; None to load them when the rank starts.
    heartbeat
        Heartbeat of this process; paused while the rank itself reports progress.

    Attributes
    ----------
    step
        Function that processes reports and assigns units, see `RankScheduler.step`. The rank calls
        the function after each report, and about twice a second at a progress message.
    """

    world_size = 1
    step: Callable[[], None]

    def __init__(self, models: "Models | None", heartbeat: CpuHeartbeat) -> None:
        now = time.monotonic()
        self._models = models
        self._heartbeat = heartbeat
        self._status = WorkerStatus(0, WorkerState.RUNNING, os.getpid(), now, now)
        self._reports: list[Any] = []
        self._next_step = now

    @property
    def statuses(self) -> dict[int, WorkerStatus]:
        """Return the status of the only rank, with rank number 0 as the key."""
        return {0: self._status}

    def spawn_workers(self, function: Callable[..., object], arguments: tuple[Any, ...]) -> None:
        """Call ``function(0, 1, self, *arguments, models)`` in this process, until it returns."""
        # Imported by the rank, it would freeze all objects of this process (gc.freeze).
        import_module("virnucpro.compute.rank_loop")
        try:
            function(0, 1, self, *arguments, self._models)
        except BaseException as error:
            self._take(Failure(type(error).__name__, str(error), ""))
            failed = isinstance(error, Exception)  # SystemExit means: stop
            self._end(WorkerState.FAILED if failed else WorkerState.STOPPED)
            raise
        self._end(WorkerState.SUCCEEDED)

    def put(self, payload: object) -> None:
        """Store a report of the rank for `collect_results`, then call `step`."""
        self._reports.append(payload)
        self.step()

    def progress(self, done: int, total: int) -> None:
        """Record in the status of the rank that `done` of `total` rows are finished."""
        self._take(Progress(done, total))
        if self._status.last_heartbeat >= self._next_step:
            self._next_step = self._status.last_heartbeat + _STEP_S
            self.step()

    def mark(self, place: tuple[int, ...]) -> None:
        """Record in the rank's status `place`: unit, stage and rows that are computed next."""
        self._take(Mark(place))

    def collect_results(self) -> list[Any]:
        """Return the stored reports, and delete them from this object."""
        reports, self._reports = self._reports, []
        return reports

    def wait_for_change(self, _timeout: float) -> None:
        """Do nothing: the rank has already ended when `spawn_workers` returns."""

    def terminate_all(self) -> None:
        """Do nothing: the rank has already ended when `spawn_workers` returns."""

    def __enter__(self) -> Self:
        self._heartbeat.paused = True
        return self

    def __exit__(self, *_error: object) -> None:
        self._heartbeat.paused = False
        del self.step  # a reference cycle: the scheduler holds this rank

    def _take(self, message: Message) -> None:
        self._heartbeat.progressed()
        self._status = after_message(self._status, message, time.monotonic())

    def _end(self, state: WorkerState) -> None:
        self._status = replace(self._status, state=state, ended_at=time.monotonic(), place=())

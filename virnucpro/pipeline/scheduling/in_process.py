"""A run whose only rank is this process, with models that are loaded already.

For a process that makes many small runs. Its run folders are like any others. An error of the rank
is raised; nothing restarts it. Committed units are kept, and a resume computes the others.
"""

import os
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Self

from virnucpro.pipeline.execution import Execution
from virnucpro.pipeline.jobs.job import Job, Reporter
from virnucpro.pipeline.run.outputs import Outcome
from virnucpro.pipeline.scheduling.runner import run_job
from virnucpro.runtime.devices import Device
from virnucpro.runtime.messages import Failure, Mark, Message, Progress
from virnucpro.runtime.policy import RestartPolicy
from virnucpro.runtime.status import WorkerState, WorkerStatus, after_message

if TYPE_CHECKING:
    from virnucpro.pipeline.worker.rank_encoder import Models

__all__ = ["BEAT_S", "WORK_S", "CpuHeartbeat", "InProcessRank", "run_in_process"]

_STEP_S = 0.5
"""Seconds between two steps of the scheduler."""

BEAT_S = 0.1
"""Seconds between two measurements."""

WORK_S = 0.05
"""CPU seconds that count as progress: more than a signal handler that writes stacks needs, less
than reading ten million bases."""


class CpuHeartbeat:
    """Call `progressed` in its block whenever the thread that entered it used the CPU for a while.

    A thread that waits for a disk, a lock or a network uses no CPU. A stopped process, and one that
    never releases the interpreter's lock, cannot run the measuring thread. An endless loop in
    Python is not detected.

    Parameters
    ----------
    progressed
        Called from a thread of its own.

    Attributes
    ----------
    paused
        True while the work reports its progress itself.
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


def run_in_process(
    job: Job,
    execution: Execution,
    device: Device,
    reporter: Reporter,
    models: "Models",
    progressed: Callable[[], object] = lambda: None,
) -> tuple[Outcome, int]:
    """Compute the missing units of a run in this process, then write its outputs.

    Parameters
    ----------
    execution
        Its devices, restarts and deadlines are ignored.
    device
        The device that this process sees.
    models
        Loaded for the encoders, classifier and precision of `job`.
    progressed
        Called from any thread for each batch, and while files are read and written.

    Returns
    -------
    outcome, n_units
        As `run_job` returns them.
    """
    execution = replace(execution, restarts=RestartPolicy(max_restarts=0))
    with CpuHeartbeat(progressed) as heartbeat:
        rank = InProcessRank(models, heartbeat)
        return run_job(job, [device], execution, reporter, rank)


class InProcessRank:
    """One rank in this process, with those methods of `GPUProcessCoordinator` that `run_job` uses.

    Parameters
    ----------
    models
        Encoders and classifier of the job.
    heartbeat
        Paused while the rank reports its batches.

    Attributes
    ----------
    step
        Step of the scheduler, called for each report and about twice a second.
    """

    world_size = 1
    step: Callable[[], None]

    def __init__(self, models: "Models", heartbeat: CpuHeartbeat) -> None:
        now = time.monotonic()
        self._models = models
        self._heartbeat = heartbeat
        self._status = WorkerStatus(0, WorkerState.RUNNING, os.getpid(), now, now)
        self._reports: list[Any] = []
        self._next_step = now

    @property
    def statuses(self) -> dict[int, WorkerStatus]:
        """Status of the rank."""
        return {0: self._status}

    def spawn_workers(self, function: Callable[..., object], arguments: tuple[Any, ...]) -> None:
        """Call ``function(0, 1, channel, *arguments, models)``; this rank is the channel."""
        try:
            function(0, 1, self, *arguments, self._models)
        except BaseException as error:
            self._take(Failure(type(error).__name__, str(error), ""))
            failed = isinstance(error, Exception)  # others, such as SystemExit, ask it to stop
            self._end(WorkerState.FAILED if failed else WorkerState.STOPPED)
            raise
        self._end(WorkerState.SUCCEEDED)

    def put(self, payload: object) -> None:
        """Keep a report of the rank."""
        self._reports.append(payload)
        self.step()

    def progress(self, done: int, total: int) -> None:
        """Record the number of finished rows."""
        self._take(Progress(done, total))
        if self._status.last_heartbeat >= self._next_step:
            self._next_step = self._status.last_heartbeat + _STEP_S
            self.step()

    def mark(self, place: tuple[int, ...]) -> None:
        """Record the piece of work that begins."""
        self._take(Mark(place))

    def collect_results(self) -> list[Any]:
        """Return the reports since the last call."""
        reports, self._reports = self._reports, []
        return reports

    def wait_for_change(self, _timeout: float) -> None:
        """Return at once: the rank ended in `spawn_workers`."""

    def terminate_all(self) -> None:
        """Return at once, as `wait_for_change`."""

    def respawn_worker(self, *_arguments: object) -> None:
        """Raise; a rank in this process is not restarted."""
        raise NotImplementedError

    stop_worker = respawn_worker

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

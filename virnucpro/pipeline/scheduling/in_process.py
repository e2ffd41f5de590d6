"""A run in this very process: its only rank, with models that were loaded before.

For a process that does many small runs, one after the other: what it leaves is a run folder as any.
Nobody watches over the rank here: an error is raised, and a process that dies or hangs is its
parent's business. What it has committed stays, and a resume goes on.
"""

import os
import time
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from virnucpro.pipeline.execution import Execution
from virnucpro.pipeline.jobs.job import Job, Reporter
from virnucpro.pipeline.run.coordinator_log import CoordinatorLog
from virnucpro.pipeline.run.outputs import Outcome, write_outputs
from virnucpro.pipeline.run.session import Session, open_session
from virnucpro.pipeline.run.status_file import StatusFile
from virnucpro.pipeline.run.token_budgets import Learnt, merge_budgets, write_budgets
from virnucpro.pipeline.scheduling.compute import (
    freeze_plan,
    rank_records,
    rank_task_of,
    survey_for,
)
from virnucpro.pipeline.scheduling.heartbeat import CpuHeartbeat
from virnucpro.pipeline.worker.rank_main import run_rank
from virnucpro.pipeline.worker.rank_task import Share
from virnucpro.runtime.devices import Device
from virnucpro.runtime.status import WorkerState, WorkerStatus

if TYPE_CHECKING:
    from virnucpro.pipeline.worker.models import Models

__all__ = ["run_in_process"]

_STATUS_EVERY_S = 0.5


def run_in_process(
    job: Job,
    execution: Execution,
    device: Device,
    reporter: Reporter,
    models: "Models",
    progressed: Callable[[], object] = lambda: None,
) -> tuple[Outcome, int]:
    """Compute what is missing in the run folder, then write its tables.

    Parameters
    ----------
    execution
        Its devices, restarts and deadlines say nothing here.
    device
        What this process sees.
    models
        Loaded for the encoders, classifier and precision of `job`.
    progressed
        Called at each batch, and while files are read and written, from any thread.

    Returns
    -------
    outcome
        What is answered.
    computed : int
        Units that were computed now.

    Raises
    ------
    InputError, RunError, BundleError, OSError
        As the parts raise them; committed segments stay.
    """
    with (
        CpuHeartbeat(progressed) as busy,
        open_session(job, execution, reporter, device.kind) as session,
    ):
        computed = _compute(session, job, execution, device, reporter, models, busy, progressed)
        return write_outputs(session, reporter), computed


def _compute(
    session: Session,
    job: Job,
    execution: Execution,
    device: Device,
    reporter: Reporter,
    models: "Models",
    busy: CpuHeartbeat,
    progressed: Callable[[], object],
) -> int:
    plan = survey_for(session, job, reporter).missing
    if not plan:
        return 0
    launch = freeze_plan(session, plan, [device])
    task = rank_task_of(session, job, [device], execution)
    story = CoordinatorLog(session.run, reporter, execution.log_format)
    story.began(launch.number, len(plan), launch.devices)
    began = time.perf_counter()
    status_file = StatusFile(session.run, reporter)
    rank = _OwnRank(status_file, story, session, task.learnt, progressed)
    with busy.leaving_it_to_batches(), rank:
        run_rank(0, 1, rank, task, {0: Share(tuple(plan))}, models)
    seconds = round(time.perf_counter() - began, 3)
    story.over(launch.number, seconds, 0)
    records = rank_records({0: rank.status}, rank.reports)
    launch = replace(launch, seconds={"ranks": seconds}, ranks=records)
    session.update(session.manifest.with_launch(launch))
    return len(plan)


class _OwnRank:
    """Hears what the rank says, as its coordinator would."""

    def __init__(
        self,
        status_file: StatusFile,
        story: CoordinatorLog,
        session: Session,
        learnt: Learnt,
        progressed: Callable[[], object],
    ) -> None:
        now = time.monotonic()
        self.status = WorkerStatus(0, WorkerState.RUNNING, os.getpid(), now, now)
        self.reports: list[dict[str, Any]] = []
        self._file = status_file
        self._story = story
        self._run = session.run
        self._learnt = learnt
        self._progressed = progressed
        self._written = 0.0

    def put(self, payload: Any) -> None:  # noqa: ANN401 - as it is put
        """Take a report."""
        if "learnt" not in payload:
            self.reports.append(payload)
            return
        self._learnt = merge_budgets(self._learnt, payload["device"], payload["learnt"])
        self._story.learnt(0, payload["device"], payload["learnt"])
        try:
            write_budgets(self._run, self._learnt)
        except OSError as error:
            self._story.budgets_not_kept(error)

    def progress(self, done: int, total: int) -> None:
        """Take down how far it is."""
        self._progressed()
        now = time.monotonic()
        self.status = replace(self.status, done=done, total=total, last_heartbeat=now)
        if now - self._written >= _STATUS_EVERY_S:
            self._written = now
            self._file.write({0: self.status}, running=True)

    def mark(self, place: tuple[int, ...]) -> None:
        """Take down where it is."""
        self._progressed()
        self.status = replace(self.status, place=place)

    def __enter__(self) -> None:
        self._file.write({0: self.status}, running=True)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _trace: object
    ) -> None:
        state, reason = WorkerState.SUCCEEDED, ""
        if error is not None:
            state = WorkerState.FAILED if isinstance(error, Exception) else WorkerState.STOPPED
            reason = f"{type(error).__name__}: {error}"
        self.status = replace(
            self.status, state=state, reason=reason, ended_at=time.monotonic(), place=()
        )
        self._file.write({0: self.status}, running=False)

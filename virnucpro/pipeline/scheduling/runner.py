"""One run: find the missing units, compute them, write the outputs."""

import json
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any

from virnucpro.durable import write_file
from virnucpro.encoders.batching import BATCH_TOKENS, Filling
from virnucpro.errors import WorkerError
from virnucpro.pipeline.execution import Execution
from virnucpro.pipeline.jobs.job import Job, Reporter
from virnucpro.pipeline.run.coordinator_files import CoordinatorLog, read_budgets, write_status
from virnucpro.pipeline.run.manifest import Launch
from virnucpro.pipeline.run.outputs import Outcome, survey_segments, write_outputs
from virnucpro.pipeline.run.session import Session, open_session
from virnucpro.pipeline.scheduling.in_process import CpuHeartbeat, InProcessRank
from virnucpro.pipeline.scheduling.preflight import check_disk_space, threads_of_rank
from virnucpro.pipeline.scheduling.scheduler import OpenUnits, RankScheduler
from virnucpro.pipeline.worker.rank_main import RankTask
from virnucpro.runtime.devices import Device
from virnucpro.runtime.gpu_coordinator import GPUProcessCoordinator
from virnucpro.runtime.policy import RestartPolicy
from virnucpro.runtime.status import WorkerStatus
from virnucpro.store.coverage import Coverage

if TYPE_CHECKING:
    from virnucpro.pipeline.worker.rank_encoder import Models

__all__ = ["run_in_process", "run_job"]


def run_job(
    job: Job,
    devices: Sequence[Device],
    execution: Execution,
    reporter: Reporter,
    rank: InProcessRank | None = None,
) -> tuple[Outcome, int]:
    """Compute the missing units of a run, then write its outputs.

    Parameters
    ----------
    devices
        One device per rank. Ranks without a unit are not started.
    rank
        Rank that runs in this process; by default each rank runs in its own process.

    Returns
    -------
    outcome
        Counts of the results.
    n_units : int
        Number of units that were missing.

    Raises
    ------
    RunError
        If the disk is too small for the missing units. Nothing has been computed.
    WorkerError
        If every rank failed and no unit is committed.
    """
    with (
        open_session(job, execution, reporter, devices[0].kind) as session,
        CoordinatorLog(session.run, reporter, execution.log_format) as log,
    ):
        coverage = survey_segments(session, reporter)
        n_missing = len(coverage.missing)
        if n_missing:
            check_disk_space(session, job, coverage)
            _Launch(session, job, devices[:n_missing], execution, reporter, log).run(coverage, rank)
        return write_outputs(session, reporter, None if n_missing else coverage), n_missing


def run_in_process(
    job: Job,
    execution: Execution,
    device: Device,
    reporter: Reporter,
    models: "Models",
    progressed: Callable[[], object] = lambda: None,
) -> tuple[Outcome, int]:
    """Compute the missing units of a run in this process, then write its outputs.

    The function is used by processes that compute many small runs. The run folder has the usual
    layout. An error of the rank is raised, without a restart. Committed units are kept; a resume
    computes the rest.

    Parameters
    ----------
    execution
        Options of the run; `devices`, `restarts` and `deadlines` are ignored.
    device
        Device of `models`, recorded in run.json.
    models
        Loaded encoders and classifier of `job`, at its precision.
    progressed
        Called from any thread after each batch, and while files are read or written.

    Returns
    -------
    outcome, n_units
        As `run_job` returns them.
    """
    execution = replace(execution, restarts=RestartPolicy(max_restarts=0))
    with CpuHeartbeat(progressed) as heartbeat:
        rank = InProcessRank(models, heartbeat)
        return run_job(job, [device], execution, reporter, rank)


@dataclass(frozen=True, slots=True)
class _Launch:
    """One launch; the method `run` writes its plan, runs the ranks and records the results."""

    session: Session
    job: Job
    devices: Sequence[Device]
    execution: Execution
    reporter: Reporter
    log: CoordinatorLog

    def run(self, coverage: Coverage, rank: InProcessRank | None) -> None:
        """Compute the missing units with `rank`; if `rank` is None, start a process per device."""
        task = _rank_task(self.session, self.job, self.devices, self.execution)
        open_units = OpenUnits(self.session.run, [file.path for file in coverage.rejected])
        record = _freeze_plan(self.session, coverage.missing, self.devices)
        self.log.launch_started(record.number, record.n_units, record.devices)
        started = time.perf_counter()
        with rank or GPUProcessCoordinator(
            len(self.devices),
            self.session.run.root,
            self.devices,
            threads=task.threads,
            deadlines=self.execution.deadlines,
        ) as ranks:
            scheduler = RankScheduler(
                ranks, task, coverage.missing, open_units, self.execution, self.log
            )
            if rank is not None:
                rank.step = partial(scheduler.step, self._show)
            try:
                scheduler.run(self._show)
            except BaseException:  # the launch is recorded, then the error is raised
                with suppress(OSError):
                    self._close(ranks, scheduler, record, started)
                raise
            try:
                self._close(ranks, scheduler, record, started)
            finally:  # report that all ranks failed rather than that run.json cannot be written
                _refuse_total_failure(self.session, ranks.statuses)

    def _show(self, statuses: Mapping[int, WorkerStatus], *, running: bool = True) -> None:
        run = self.session.run
        try:
            write_status(run, statuses, running=running)
        except OSError as error:
            self.reporter.warn(f"{run.status_json} cannot be written: {error.strerror}")
        if running:
            self.reporter.ranks(statuses)
            self.log.check_output()

    def _close(
        self,
        ranks: GPUProcessCoordinator | InProcessRank,
        scheduler: RankScheduler,
        record: Launch,
        started: float,
    ) -> None:
        """End the launch: stop the ranks, and record the statistics of each rank in run.json."""
        ranks.terminate_all()
        self._show(ranks.statuses, running=False)
        scheduler.finish()
        seconds = round(time.perf_counter() - started, 3)
        self.log.launch_ended(record.number, seconds, len(scheduler.faults))
        self.session.run.remove_unfinished()  # temporary files of killed ranks
        records = _rank_records(ranks.statuses, scheduler.reports)
        record = replace(record, seconds={"ranks": seconds}, ranks=records)
        self.session.update(self.session.manifest.with_launch(record))


def _freeze_plan(session: Session, plan: Sequence[int], devices: Sequence[Device]) -> Launch:
    """Write the plan file of a new launch, and add the launch to run.json; return the launch.

    The plan file lists the units to compute. The list does not change while ranks commit units.
    """
    session.run.launches.mkdir(exist_ok=True)
    number = 1 + max((launch.number for launch in session.manifest.launches), default=0)
    with write_file(session.run.launch(number)) as stream:
        stream.write(json.dumps({"units": list(plan)}).encode())
    launch = Launch(
        number=number,
        started=datetime.now(UTC).isoformat(timespec="seconds"),
        devices=[str(device) for device in devices],
        n_units=len(plan),
    )
    session.update(session.manifest.with_launch(launch))
    return launch


def _rank_task(
    session: Session, job: Job, devices: Sequence[Device], execution: Execution
) -> RankTask:
    kind = devices[0].kind
    return RankTask(
        run=session.run,
        fingerprint=session.manifest.fingerprint,
        encoders=job.encoders,
        head=job.head,
        precision=job.settled_precision,
        embeddings=job.embeddings,
        unit_rows=session.manifest.units["rows"],
        unit_positions=session.manifest.units["positions"],
        batch_tokens=BATCH_TOKENS[kind],
        torch_device=kind,
        threads=threads_of_rank(execution, len(devices)),
        learnt=read_budgets(session.run),
        log_format=execution.log_format,
        fallback=job.fallback,
    )


def _rank_records(
    statuses: Mapping[int, WorkerStatus], reports: Sequence[Mapping[str, Any]]
) -> dict[str, dict[str, Any]]:
    """Return rank number and run.json entry of each rank; counts are sums over all attempts."""
    records: dict[str, dict[str, Any]] = {
        str(rank): {
            "state": status.state,
            "exit": status.exit,
            "reason": status.reason,
            "attempts": status.attempt,
            "faults": [fault.reason for fault in status.faults],
        }
        for rank, status in statuses.items()
    }
    fillings = dict.fromkeys(records, Filling())
    for report in reports:
        rank = str(report["rank"])
        record = records[rank]
        fillings[rank] += Filling(**report["filling"])
        record["batches"], record["tokens"] = fillings[rank].batches, fillings[rank].tokens
        record["unused"] = round(fillings[rank].unused, 4)
        seconds = record.setdefault("seconds", {})
        record["rows"] = record.get("rows", 0) + report["rows"]
        record["again"] = dict(Counter(record.get("again", {})) + Counter(report["again"]))
        for stage, value in report["seconds"].items():
            seconds[stage] = round(seconds.get(stage, 0.0) + value, 3)
    return records


def _refuse_total_failure(session: Session, statuses: Mapping[int, WorkerStatus]) -> None:
    """Raise WorkerError if every rank failed and no unit is committed."""
    if all(not status.succeeded for status in statuses.values()) and not session.run.segments():
        rank, status = min(statuses.items())
        raise WorkerError(
            f"all workers ({len(statuses)}) failed before the first unit was computed. Worker "
            f"{rank}: {status.reason.rstrip('.')}. See {session.run.log(rank)}, correct the error, "
            "and rerun with --resume."
        )

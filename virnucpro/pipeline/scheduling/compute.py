"""One launch: freeze the plan, start a rank a device, watch until all have ended."""

import json
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from virnucpro.durable import write_file
from virnucpro.encoders.batching import Filling
from virnucpro.encoders.memory.token_budget import BATCH_TOKENS
from virnucpro.errors import WorkerError
from virnucpro.pipeline.execution import Execution
from virnucpro.pipeline.jobs.job import Job, Reporter
from virnucpro.pipeline.jobs.rank_count import threads_of_rank
from virnucpro.pipeline.run.coordinator_log import CoordinatorLog
from virnucpro.pipeline.run.manifest import Launch
from virnucpro.pipeline.run.session import Session
from virnucpro.pipeline.run.status_file import StatusFile
from virnucpro.pipeline.run.token_budgets import read_budgets
from virnucpro.pipeline.scheduling.preflight import refuse_small_disk
from virnucpro.pipeline.scheduling.scheduler import OpenUnits, RankScheduler
from virnucpro.pipeline.worker.rank_task import RankTask
from virnucpro.run_dir import RunDirectory
from virnucpro.runtime.devices import Device
from virnucpro.runtime.gpu_coordinator import GPUProcessCoordinator
from virnucpro.runtime.status import WorkerStatus
from virnucpro.store.coverage import Coverage, survey

__all__ = [
    "compute_missing",
    "freeze_plan",
    "rank_records",
    "rank_task_of",
    "survey_for",
]


def compute_missing(
    session: Session,
    job: Job,
    devices: Sequence[Device],
    execution: Execution,
    reporter: Reporter,
) -> Mapping[int, WorkerStatus]:
    """Compute the units that no valid segment holds, as far as there are ranks to do it.

    Parameters
    ----------
    devices
        One a rank; there are no more ranks than units to compute.

    Returns
    -------
    The ranks' last statuses; empty when nothing was missing.

    Raises
    ------
    RunError
        When the disk has no room for what is missing: before anything is computed.
    WorkerError
        When every rank failed and none committed anything: with the first rank's reason.
    """
    coverage = survey_for(session, job, reporter)
    plan = list(coverage.missing)
    if not plan:
        return {}
    devices = devices[: len(plan)]
    launch = freeze_plan(session, plan, devices)
    task = rank_task_of(session, job, devices, execution)
    open_units = OpenUnits(session.run, [rejected.path for rejected in coverage.rejected])
    story = CoordinatorLog(session.run, reporter, execution.log_format)
    story.began(launch.number, len(plan), launch.devices)
    started = time.perf_counter()
    with GPUProcessCoordinator(
        len(devices),
        session.run.root,
        devices,
        threads=task.threads,
        deadlines=execution.deadlines,
    ) as coordinator:
        waves = RankScheduler(coordinator, task, plan, open_units, execution, story)
        _watch(session.run, coordinator, waves, reporter)
        statuses = coordinator.statuses
    session.run.remove_unfinished()  # what ranks were killed in the middle of
    seconds = round(time.perf_counter() - started, 3)
    story.over(launch.number, seconds, len(waves.faults))
    launch = replace(
        launch, seconds={"ranks": seconds}, ranks=rank_records(statuses, waves.reports)
    )
    try:
        session.update(session.manifest.with_launch(launch))
    finally:
        # Before a run.json that cannot be written either: the ranks' reason is the one to tell.
        _refuse_total_failure(session, statuses)
    return statuses


def _watch(
    run: RunDirectory, coordinator: GPUProcessCoordinator, waves: RankScheduler, reporter: Reporter
) -> None:
    """Let the ranks work to the end, and keep whoever watches informed."""
    status_file = StatusFile(run, reporter)

    def look(statuses: Mapping[int, WorkerStatus]) -> None:
        status_file.write(statuses, running=True)
        reporter.ranks(statuses)

    try:
        waves.run(look)
    finally:
        coordinator.terminate_all()
        status_file.write(coordinator.statuses, running=False)


def survey_for(session: Session, job: Job, reporter: Reporter) -> Coverage:
    """Find out what is missing, and refuse it where the disk has no room for it.

    Raises
    ------
    RunError
        When the disk has no room.
    """
    coverage = survey(session.run, session.bounds, session.manifest.fingerprint)
    for rejected in coverage.rejected:
        reporter.warn(f"segment not used: {rejected.reason}")
    if coverage.missing:
        refuse_small_disk(session, job, coverage)
    return coverage


def freeze_plan(session: Session, plan: Sequence[int], devices: Sequence[Device]) -> Launch:
    """Write the plan: every rank deals from this one list, whatever is committed meanwhile."""
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


def rank_task_of(
    session: Session, job: Job, devices: Sequence[Device], execution: Execution
) -> RankTask:
    """Say what is the same for every rank of a launch on `devices`."""
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
    )


def rank_records(
    statuses: Mapping[int, WorkerStatus], reports: Sequence[Mapping[str, Any]]
) -> dict[str, dict[str, Any]]:
    """Say for run.json what became of each rank: the sums over all of its shares."""
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
    """Every rank failed and there is nothing to aggregate: an error, not a partial result."""
    if all(not status.succeeded for status in statuses.values()) and not session.run.segments():
        rank, status = min(statuses.items())
        raise WorkerError(
            f"every rank ({len(statuses)}) failed before anything was computed. Rank {rank}: "
            f"{status.reason.rstrip('.')}. See {session.run.log(rank)}, then repeat with --resume."
        )

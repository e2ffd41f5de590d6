"""One launch: freeze the plan, start a rank a device, watch until all have ended."""

import json
import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from datetime import UTC, datetime
from typing import Any

from virnucpro.durable import write_file
from virnucpro.errors import WorkerError
from virnucpro.pipeline.gpu_coordinator import GPUProcessCoordinator
from virnucpro.pipeline.gpu_worker import run_rank
from virnucpro.pipeline.job import Job, Reporter
from virnucpro.pipeline.manifest import Launch
from virnucpro.pipeline.rank_task import RankTask
from virnucpro.pipeline.session import Session
from virnucpro.pipeline.space import refuse_small_disk
from virnucpro.run_dir import RunDirectory
from virnucpro.runtime.devices import Device
from virnucpro.runtime.status import WorkerStatus
from virnucpro.store.coverage import survey

__all__ = ["compute_missing"]

_TICK = 0.5
"""Seconds between two looks at the ranks for the sake of the status file and the display."""

_BATCH_TOKENS = {"cpu": 2_048, "cuda": 16_384}


def compute_missing(
    session: Session,
    job: Job,
    devices: Sequence[Device],
    threads: int,
    reporter: Reporter,
) -> Mapping[int, WorkerStatus]:
    """Compute the units that no valid segment holds, each once, as far as the ranks survive.

    Parameters
    ----------
    devices
        One a rank; there are no more ranks than units to compute.
    threads
        CPU threads for all ranks together.

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
    coverage = survey(session.run, session.bounds, session.manifest.fingerprint)
    for rejected in coverage.rejected:
        reporter.warn(f"segment not used: {rejected.reason}")
    plan = list(coverage.missing)
    if not plan:
        return {}
    refuse_small_disk(session, job, coverage)
    devices = devices[: len(plan)]
    launch = _freeze(session, plan, devices)
    task = _task(session, job, launch.number, devices, threads)
    reporter.stage(f"computing {len(plan):,} units on {len(devices)} ranks")
    started = time.perf_counter()
    statuses, reports = _run(session, task, devices, reporter)
    seconds = {"ranks": round(time.perf_counter() - started, 3)}
    ranks = _rank_records(statuses, reports)
    try:
        session.update(session.manifest.with_launch(replace(launch, seconds=seconds, ranks=ranks)))
    finally:
        # Before a run.json that cannot be written either: the ranks' reason is the one to tell.
        _refuse_total_failure(session, statuses)
    return statuses


def _freeze(session: Session, plan: Sequence[int], devices: Sequence[Device]) -> Launch:
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


def _task(
    session: Session, job: Job, launch: int, devices: Sequence[Device], threads: int
) -> RankTask:
    kind = devices[0].kind
    return RankTask(
        run=session.run,
        launch=launch,
        fingerprint=session.manifest.fingerprint,
        encoders=job.encoders,
        head=job.head,
        precision=job.precision,
        embeddings=job.embeddings,
        unit_rows=session.manifest.units["rows"],
        unit_positions=session.manifest.units["positions"],
        batch_tokens=_BATCH_TOKENS[kind],
        torch_device=kind,
        threads=max(1, threads // len(devices)),
    )


def _run(
    session: Session, task: RankTask, devices: Sequence[Device], reporter: Reporter
) -> tuple[Mapping[int, WorkerStatus], list[dict[str, Any]]]:
    with GPUProcessCoordinator(
        len(devices), session.run.root, devices, threads=task.threads
    ) as coordinator:
        coordinator.spawn_workers(run_rank, (task,))
        status_file = _StatusFile(session.run, reporter)
        try:
            while any(not status.ended for status in coordinator.statuses.values()):
                coordinator.wait_for_completion(timeout=_TICK)
                status_file.write(coordinator.statuses, running=True)
                reporter.ranks(coordinator.statuses)
        finally:
            coordinator.terminate_all()
            status_file.write(coordinator.statuses, running=False)
        return coordinator.statuses, coordinator.collect_results()


class _StatusFile:
    """status.json, which informs and decides nothing: a run goes on without it, and says so once.

    What keeps it from being written (a full disk, a lost mount) keeps segments from it too, and
    the ranks tell that with the bytes that they need.
    """

    def __init__(self, run: RunDirectory, reporter: Reporter) -> None:
        self._run = run
        self._reporter = reporter
        self._complained = False

    def write(self, statuses: Mapping[int, WorkerStatus], *, running: bool) -> None:
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
    for reading in ("started_at", "last_heartbeat", "ended_at"):
        del content[reading]
    end = now if status.ended_at is None else status.ended_at
    return content | {
        "seconds": round(end - status.started_at, 1),
        "silent_seconds": 0.0 if status.ended else round(now - status.last_heartbeat, 1),
    }


def _rank_records(
    statuses: Mapping[int, WorkerStatus], reports: Sequence[Mapping[str, Any]]
) -> dict[str, dict[str, Any]]:
    records: dict[str, dict[str, Any]] = {
        str(rank): {"state": status.state, "exit": status.exit, "reason": status.reason}
        for rank, status in statuses.items()
    }
    for report in reports:
        seconds = {stage: round(value, 3) for stage, value in report["seconds"].items()}
        records[str(report["rank"])] |= {"rows": report["rows"], "seconds": seconds}
    return records


def _refuse_total_failure(session: Session, statuses: Mapping[int, WorkerStatus]) -> None:
    """Every rank failed and there is nothing to aggregate: an error, not a partial result."""
    if all(not status.succeeded for status in statuses.values()) and not session.run.segments():
        rank, status = min(statuses.items())
        raise WorkerError(
            f"every rank ({len(statuses)}) failed before anything was computed. Rank {rank}: "
            f"{status.reason.rstrip('.')}. See {session.run.log(rank)}, then repeat with --resume."
        )

"""Compute a part of a run: one attempt of one task, on the devices of one machine."""

import os
import secrets
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from virnucpro.errors import IndexFormatError, RunError
from virnucpro.pipeline.cluster.identity import Task
from virnucpro.pipeline.cluster.model import job_of_run
from virnucpro.pipeline.execution import Execution
from virnucpro.pipeline.jobs.job import Reporter
from virnucpro.pipeline.parts.claims import COPY_AFTER_S, RoundShare
from virnucpro.pipeline.parts.rounds import (
    Round,
    find_latest_round,
    own_strides,
    read_latest_round,
)
from virnucpro.pipeline.run.coordinator_files import CoordinatorLog
from virnucpro.pipeline.run.manifest import Manifest, read_manifest, write_manifest
from virnucpro.pipeline.run.run_progress import read_progress
from virnucpro.pipeline.run.session import session_of
from virnucpro.pipeline.scheduling.preflight import check_device_memory, devices_of
from virnucpro.pipeline.scheduling.rank_launch import RankLaunch
from virnucpro.pipeline.worker.rank_main import Share
from virnucpro.run_dir import RunDirectory
from virnucpro.runtime.devices import Device
from virnucpro.sequences.index import SequenceIndex

__all__ = ["Worked", "is_complete", "open_units", "work"]

_HEARTBEAT_S = 10.0
"""Seconds between two versions of a part's status.json."""


@dataclass(frozen=True, slots=True)
class Worked:
    """Result of one attempt.

    Attributes
    ----------
    part
        Folder of the part; None if no unit was open.
    units
        Number of units that the attempt computed.
    failed
        Numbers of the workers that failed permanently.
    """

    part: Path | None
    units: int = 0
    failed: Sequence[int] = ()


def work(
    root: Path,
    task: Task,
    execution: Execution,
    reporter: Reporter,
    *,
    model: str | None = None,
    copy_after: float = COPY_AFTER_S,
) -> Worked:
    """Compute units of the latest round, until no unit is left that this task can compute.

    Parameters
    ----------
    root
        The run. Its inputs are not read.
    model
        Bundle or encoder; None for that of the round.
    copy_after
        Minimum seconds from another worker's claim to a copy of its unit.

    Raises
    ------
    NotARunError, RunError
        If the folder is not a run, or has no round.
    FingerprintError
        If the model differs from that of the run.
    IndexFormatError
        If a file of the index has another size, or the index belongs to another run.
    WorkerError
        If every worker failed and the attempt has computed nothing.
    """
    run = RunDirectory(root)
    manifest = read_manifest(run)
    current = read_latest_round(run)
    index = SequenceIndex.open(run.index)
    if index.fingerprint != manifest.index_fingerprint:
        raise IndexFormatError(f"{run.index} is the index of another run. Restore it from a copy.")
    session = session_of(run, manifest, index)
    if current.units and current.units[-1] >= len(session.bounds) - 1:
        raise RunError(
            f"{run.round(current.number)}: has units that the run lacks. Remove this file, then "
            f"run virnucpro rescue {run.root}."
        )
    units = open_units(run, current)
    if not units:
        return Worked(None)
    job = job_of_run(run, manifest, model or current.model)
    devices = devices_of(job, execution)
    check_device_memory(job, devices)
    part = _make_part(run, task, manifest)
    session = replace(session, run=part, manifest=replace(manifest, launches=()))
    shares = _shares(run, part, current, task, devices, copy_after)
    execution = replace(execution, outdir=part.root, redeal=False)
    with CoordinatorLog(part, reporter, execution.log_format) as log:
        launch = RankLaunch(session, job, devices, execution, reporter, log, _HEARTBEAT_S)
        launch.run(shares, of_round=units)
    ranks = session.manifest.launches[-1].ranks
    failed = [int(rank) for rank, record in ranks.items() if record["state"] == "failed"]
    return Worked(part.root, len(list(part.own_segments())), failed)


def open_units(run: RunDirectory, current: Round) -> list[int]:
    """Return the units of a round without a segment file; segments are not read.

    Files that could not be used when the round began do not count.
    """
    rejected = {run.root / name for name in current.rejected}
    present = {unit for unit, path in run.segments() if path not in rejected}
    return [unit for unit in current.units if unit not in present]


def is_complete(run: RunDirectory) -> bool:
    """Return whether a run has all outputs and no open unit; segments are not read."""
    current = find_latest_round(run)
    has_open = current is not None and bool(open_units(run, current))
    return not has_open and read_progress(run).state == "complete"


def _make_part(run: RunDirectory, task: Task, manifest: Manifest) -> RunDirectory:
    """Create the folder of a new attempt, which no other process ever writes; return it."""
    run.parts.mkdir(exist_ok=True)
    part = run.part(f"{task.number:04d}.{secrets.token_hex(4)}")
    part.root.mkdir()
    part.index.symlink_to(os.path.relpath(run.index, part.root))
    write_manifest(part, replace(manifest, launches=()))
    return part


def _shares(
    run: RunDirectory,
    part: RunDirectory,
    current: Round,
    task: Task,
    devices: Sequence[Device],
    copy_after: float,
) -> dict[int, Share]:
    shares = {}
    for rank in range(len(devices)):
        strides = own_strides(current.strides, task.number, task.count, rank, len(devices))
        of_round = RoundShare(run, part.root.name, rank, current, tuple(strides), copy_after)
        shares[rank] = Share(of_round.units, of_round=of_round)
    return shares

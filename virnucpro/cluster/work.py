"""Compute a part of a run: one attempt of one task, on the devices of one machine."""

import os
import secrets
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from virnucpro.cluster.identity import Task
from virnucpro.compute.claims import COPY_AFTER_S, RoundShare
from virnucpro.compute.preflight import usable_devices
from virnucpro.compute.rank_launch import RankLaunch
from virnucpro.compute.rank_main import Share
from virnucpro.compute.rounds import (
    Round,
    find_latest_round,
    own_strides,
    read_latest_round,
)
from virnucpro.errors import RunError
from virnucpro.option import inherited
from virnucpro.run.coordinator_files import CoordinatorLog
from virnucpro.run.embed_job import embed_job
from virnucpro.run.execution import Execution
from virnucpro.run.job import Job
from virnucpro.run.manifest import read_manifest
from virnucpro.run.options import EmbedOptions, PredictOptions
from virnucpro.run.predict_job import predict_job
from virnucpro.run.reporter import Reporter
from virnucpro.run.run import Run
from virnucpro.run.run_progress import read_progress
from virnucpro.run_dir import RunDirectory

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
    paths = RunDirectory(root)
    manifest = read_manifest(paths)
    current = read_latest_round(paths)
    run = Run.open(paths, manifest, verify=False)
    if current.units and current.units[-1] >= run.n_units:
        raise RunError(
            f"{paths.round(current.number)}: has units that the run lacks. Remove this file, then "
            f"run virnucpro rescue {paths.root}."
        )
    paths.require_own_claims(current.number)
    units = open_units(paths, current)
    if not units:
        return Worked(None)
    job = job_of_run(run, model or current.model)
    devices = usable_devices(job, execution)
    part = _make_part(run, task)
    shares = {}
    for rank in range(len(devices)):
        strides = own_strides(current.strides, task.number, task.count, rank, len(devices))
        name = part.paths.root.name
        of_round = RoundShare(paths, name, rank, current, tuple(strides), copy_after)
        shares[rank] = Share(of_round.units, of_round=of_round)
    execution = replace(execution, outdir=part.paths.root)
    with CoordinatorLog(part.paths, reporter) as log:
        launch = RankLaunch(part, job, devices, execution, reporter, log, _HEARTBEAT_S)
        launch.run(shares, of_round=units)
    ranks = part.manifest.launches[-1].ranks
    failed = [int(rank) for rank, record in ranks.items() if record["state"] == "failed"]
    return Worked(part.paths.root, len(list(part.paths.own_segments())), failed)


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


def _make_part(run: Run, task: Task) -> Run:
    """Create the folder of a new attempt, which no other process ever writes; return its run."""
    run.paths.parts.mkdir(exist_ok=True)
    paths = run.paths.part(f"{task.number:04d}.{secrets.token_hex(4)}")
    paths.root.mkdir()
    paths.machine.mkdir()
    paths.index.symlink_to(os.path.relpath(run.paths.index, paths.machine))
    part = replace(run, paths=paths)
    part.update(replace(run.manifest, launches=()))
    return part


_ADVICE: Final = "Name the bundle or encoder of the run with -b."


def job_of_run(run: Run, model: str) -> Job:
    """Return the job of a run, with the bundle or encoder `model`.

    Raises
    ------
    UsageError, BundleError
        If there is no such model, or its files are damaged.
    FingerprintError
        If the model differs from that of the run.
    """
    inputs = [file.path for file in run.manifest.inputs]
    parameters = run.manifest.parameters
    if run.manifest.command == "predict":
        job = predict_job(inputs, bundle=model, **inherited(PredictOptions, parameters))
    else:
        job = embed_job(inputs, model, **inherited(EmbedOptions, parameters))
    given = {"command": job.command, **job.parameters()}
    run.manifest.refuse_other_parameters(run.paths, given, advice=_ADVICE)
    return job

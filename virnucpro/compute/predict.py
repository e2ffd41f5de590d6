"""Compute a job from its inputs to its tables."""

import os
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Final

from virnucpro.compute.in_process import CpuHeartbeat, InProcessRank
from virnucpro.compute.preflight import (
    check_disk_space,
    report_unused_gpus,
    settled,
    usable_devices,
)
from virnucpro.compute.rank_launch import ExecutorMaker, RankLaunch
from virnucpro.compute.rank_main import Share
from virnucpro.encoders.registry import need_torch
from virnucpro.errors import UsageError, VirnucproError
from virnucpro.folder_lock import Use
from virnucpro.run.calls import survey_segments
from virnucpro.run.coordinator_files import CoordinatorLog
from virnucpro.run.creation import (
    claimed,
    created,
    created_by_task,
    joined,
    resumed,
    usable_folder,
)
from virnucpro.run.execution import Execution
from virnucpro.run.job import Job, require_inputs
from virnucpro.run.manifest import read_manifest
from virnucpro.run.outputs import write_outputs
from virnucpro.run.report import prepare_report
from virnucpro.run.reporter import Reporter
from virnucpro.run.run import Outcome, run_lock
from virnucpro.runtime.devices import Device, parse_devices
from virnucpro.sequences.entries import STANDARD_INPUTS, total_bytes
from virnucpro.sequences.partition import deal
from virnucpro.store.coverage import missing_units
from virnucpro.task import Task

if TYPE_CHECKING:
    from virnucpro.compute.rank_encoder import Models

_SMALL: Final = 512 << 10
"""Bytes of inputs that this process computes before another process would have started."""


def predict(job: Job, execution: Execution, reporter: Reporter | None = None) -> Outcome:
    """Compute the missing units of a run, then write its outputs.

    Parameters
    ----------
    job
        Result of `virnucpro.run.predict_job.predict_job` or `virnucpro.run.embed_job.embed_job`.

    Returns
    -------
    Counts of the results. Rows of a worker that failed permanently are `missing` in the tables; a
    resume computes them.

    Raises
    ------
    UsageError, InputError, RunError, DeviceError
        If the inputs, the run folder or the devices cannot be used. Nothing has been computed.
    WorkerError
        If every rank failed and nothing was computed.
    """
    reporter = reporter or Reporter()
    report_unused_gpus(job, execution, reporter)
    if not execution.in_process and _is_small(job, execution):
        small = replace(execution, devices="cpu:1", in_process=True)
        try:
            return run_in_process(job, small, reporter)[0]
        except (VirnucproError, OSError):
            raise
        except Exception as error:  # noqa: BLE001 - of a row, which a worker can isolate
            reporter.warn(f"{type(error).__name__}: {error}. Workers compute the rest of the run.")
            execution = replace(execution, resume=True, force=False)
    here = execution.in_process and parse_devices(execution.devices, os.environ) == [Device("cpu")]
    compute_in = run_in_process if here else run_on_ranks
    outcome, _ = compute_in(job, execution, reporter)
    return outcome


def _is_small(job: Job, execution: Execution) -> bool:
    """Return whether a new run takes less time than the start of a worker.

    These are runs of encoders without weights, for small files, if no devices are given. A resume
    starts workers: the process of the first attempt may have died of a sequence.
    """
    if execution.devices != "auto" or execution.resume:
        return False
    others = (spec for other in job.others.values() for spec in other.encoders)
    if need_torch((*job.encoders, *others)):
        return False
    return total_bytes(job.inputs) <= _SMALL


def run_on_ranks(
    job: Job,
    execution: Execution,
    reporter: Reporter,
    device: Device | None = None,
    executor_of: ExecutorMaker | None = None,
) -> tuple[Outcome, int]:
    """Compute the missing units of a run, then write its outputs.

    Parameters
    ----------
    device
        The only device; None for the devices of `execution`. Ranks without a unit are not started.
    executor_of
        Returns the executor of a launch; by default, each rank runs in its own process.

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
    require_inputs(job.inputs)
    with claimed(job, execution) as manifest:
        job = settled(job, execution, manifest)
        devices = usable_devices(job, execution) if device is None else [device]
        if manifest is None:
            run = created(job, execution, reporter, devices[0].kind)
        else:
            run = resumed(manifest, job, execution, reporter)
        with CoordinatorLog(run.paths, reporter) as log:
            coverage = survey_segments(run, reporter)
            n_missing = len(coverage.missing)
            if n_missing:
                check_disk_space(run, job, coverage.missing)
                used = devices[:n_missing]
                shares = _shares(coverage.missing, len(used))
                launch = RankLaunch(run, job, used, execution, reporter, log)
                has_time = executor_of is None and bool(run.manifest.calibration)
                early = [prepare_report] if execution.report else []
                with run.quality.computed_meanwhile(*early) if has_time else nullcontext():
                    launch.run(shares, executor_of)
            current = None if n_missing else coverage
            return write_outputs(run, reporter, current, report=execution.report), n_missing


def run_in_process(
    job: Job,
    execution: Execution,
    reporter: Reporter,
    device: Device | None = None,
    models: "Models | None" = None,
    progressed: Callable[[], object] = lambda: None,
) -> tuple[Outcome, int]:
    """Compute the missing units of a run in this process, then write its outputs.

    The function is used for small runs, by processes that compute many runs, and by the Python API.
    The run folder has the usual layout. An error of the rank is raised, without a restart.
    Committed units are kept; a resume computes the rest.

    Parameters
    ----------
    execution
        Options of the run; `max_restarts` and `deadlines` are ignored.
    device
        Device of `models`, recorded in run.json; None for that of `execution`.
    models
        Loaded encoders and classifier of `job`, at its precision; None to load them, if any unit
        is missing.
    progressed
        Called from any thread after each batch, and while files are read or written.

    Returns
    -------
    outcome, n_units
        As `run_on_ranks` returns them.
    """
    with CpuHeartbeat(progressed) as heartbeat:
        executor_of = partial(InProcessRank, models, heartbeat)
        return run_on_ranks(job, execution, reporter, device, executor_of)


@dataclass(frozen=True, slots=True)
class TaskOutcome:
    """What a task has come to.

    Attributes
    ----------
    computed, missing
        Numbers of units that this attempt computed, and of those that the task still lacks.
    done, units
        Numbers of units of the run with a segment file of any task, and of all units.
    """

    computed: int
    missing: int
    done: int
    units: int


def compute_task(job: Job, execution: Execution, task: Task, reporter: Reporter) -> TaskOutcome:
    """Compute the units of a task that have no valid segment; write no table.

    The units of task K of N are those whose number is K modulo N. The run is created if there is
    none. Any number of tasks work at once, each in a folder of its own; equal tasks do no harm.

    Raises
    ------
    UsageError, InputError, RunError, DeviceError
        As `predict`.
    FingerprintError
        If the folder has a run with other inputs or parameters.
    WorkerError
        If every rank failed and nothing was computed.
    """
    require_inputs(job.inputs)
    if not set(STANDARD_INPUTS).isdisjoint(job.inputs):
        raise UsageError("--task: each task reads the inputs, so standard input cannot be one")
    report_unused_gpus(job, execution, reporter)
    paths = usable_folder(job, execution)
    if not paths.run_json.exists():
        new = settled(job, execution)
        devices = usable_devices(new, execution)
        n_workers = task.count * len(devices)
        created_by_task(new, execution, reporter, devices[0].kind, n_workers)
    with run_lock(paths, lock=execution.lock, use=Use.TASK):
        manifest = read_manifest(paths)
        job = settled(job, execution, manifest)
        devices = usable_devices(job, execution)
        run = joined(manifest, job, execution, reporter)
        own_units = range(task.number, run.n_units, task.count)
        missing = missing_units(paths, own_units, run.bounds, manifest.fingerprint)
        computed: set[int] = set()
        if missing:
            check_disk_space(run, job, missing)
            attempt, used = run.of_attempt(task.number), devices[: len(missing)]
            with CoordinatorLog(attempt.paths, reporter) as log:
                launch = RankLaunch(attempt, job, used, execution, reporter, log)
                launch.run(_shares(missing, len(used)))
            computed = {unit for unit, _ in attempt.paths.segments()}
        done = {unit for unit, _ in paths.segments() if 0 <= unit < run.n_units}
    return TaskOutcome(len(computed), len({*missing} - computed), len(done), run.n_units)


def _shares(units: Sequence[int], n_ranks: int) -> dict[int, Share]:
    return {rank: Share(tuple(deal(units, rank, n_ranks))) for rank in range(n_ranks)}

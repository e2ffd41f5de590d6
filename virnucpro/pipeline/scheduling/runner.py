"""One run: find the missing units, compute them, write the outputs."""

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import replace
from typing import TYPE_CHECKING

from virnucpro.pipeline.execution import Execution
from virnucpro.pipeline.jobs.job import Job, Reporter
from virnucpro.pipeline.run.coordinator_files import CoordinatorLog
from virnucpro.pipeline.run.outputs import Outcome, survey_segments, write_outputs
from virnucpro.pipeline.run.report import prepare_report
from virnucpro.pipeline.run.session import open_session
from virnucpro.pipeline.scheduling.in_process import CpuHeartbeat, InProcessRank
from virnucpro.pipeline.scheduling.preflight import check_disk_space
from virnucpro.pipeline.scheduling.rank_launch import RankLaunch
from virnucpro.pipeline.scheduling.scheduler import assign_in_turn
from virnucpro.pipeline.worker.rank_main import Share
from virnucpro.runtime.devices import Device
from virnucpro.runtime.policy import RestartPolicy

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
            used = devices[:n_missing]
            assigned = assign_in_turn(coverage.missing, range(len(used)))
            shares = {number: Share(units) for number, units in assigned.items()}
            rejected = [file.path for file in coverage.rejected]
            launch = RankLaunch(session, job, used, execution, reporter, log)
            idle = rank is None and bool(session.manifest.calibration)
            early = [prepare_report] if execution.report else []
            with session.quality.computed_meanwhile(*early) if idle else nullcontext():
                launch.run(shares, rejected, rank)
        known = None if n_missing else coverage
        return write_outputs(session, reporter, known, report=execution.report), n_missing


def run_in_process(
    job: Job,
    execution: Execution,
    device: Device,
    reporter: Reporter,
    models: "Models | None" = None,
    progressed: Callable[[], object] = lambda: None,
) -> tuple[Outcome, int]:
    """Compute the missing units of a run in this process, then write its outputs.

    The function is used by processes that compute many small runs, and by the Python API. The run
    folder has the usual layout. An error of the rank is raised, without a restart. Committed units
    are kept; a resume computes the rest.

    Parameters
    ----------
    execution
        Options of the run; `devices`, `restarts` and `deadlines` are ignored.
    device
        Device of `models`, recorded in run.json.
    models
        Loaded encoders and classifier of `job`, at its precision; None to load them, if any unit
        is missing.
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

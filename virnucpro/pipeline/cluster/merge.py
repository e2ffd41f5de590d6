"""Write the tables of a run from the segments of all its parts, and begin further rounds."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from virnucpro.pipeline.cluster.model import job_of_run
from virnucpro.pipeline.jobs.job import Reporter
from virnucpro.pipeline.parts.rounds import Round, find_latest_round, write_round
from virnucpro.pipeline.run.outputs import Outcome, survey_segments, write_outputs
from virnucpro.pipeline.run.part_states import LOST_S, PartState, part_states, settled_parts
from virnucpro.pipeline.run.session import Session, reopen_session
from virnucpro.run_dir import RunDirectory

__all__ = ["Merged", "merge", "rescue"]


@dataclass(frozen=True, slots=True)
class Merged:
    """Result of a merge.

    Attributes
    ----------
    outcome
        Counts of the results.
    units, missing
        Number of all units, and of units without a valid segment.
    duplicates
        Number of segments of units that another segment of the run has too.
    working
        Number of parts that were working when the merge began.
    next_round
        Round that was begun for the missing units; None if none was begun.
    """

    outcome: Outcome
    units: int
    missing: int
    duplicates: int
    working: int
    next_round: Round | None = None


def merge(
    root: Path,
    reporter: Reporter,
    *,
    then_rescue: bool = False,
    lock: bool = True,
    report: bool = True,
) -> Merged:
    """Write the tables of a run from its valid segments; this process alone updates run.json.

    While parts work, the tables are partial: they show the segments at the start of the merge.
    When no part works and no row is missing, temporary files of killed parts are removed.

    Parameters
    ----------
    then_rescue
        Whether to begin a round for the missing units, unless parts still work. A killed part is
        known after 90 s; the merge waits for that, unless every unit has a valid segment.
    lock
        Whether to lock the run; False on a file system without locks.
    report
        Whether a run of predict gets a report.html.

    Raises
    ------
    NotARunError, IndexFormatError, RunLockedError
        As `virnucpro.pipeline.run.session.reopen_session`.
    OSError
        If an output cannot be written; earlier outputs are unchanged.
    """
    run = RunDirectory(root)
    with reopen_session(run, lock=lock) as session:
        parts = part_states(run)
        found = {unit for unit, _ in run.segments()}
        waits = then_rescue and _n_working(parts) > 0
        if waits and len(found) < len(session.bounds) - 1:
            parts, waits = _settled(run, reporter), False
        outcome = write_outputs(session, reporter, report=report)
        if waits and outcome.missing_units:  # a segment cannot be used
            parts = _settled(run, reporter)
            outcome = write_outputs(session, reporter, report=report)
        for part in parts:
            if part.problem:
                reporter.warn(f"{part.problem}: its task counts as lost")
        working = _n_working(parts)
        if working and not outcome.complete:
            reporter.warn(
                f"{working} tasks work, or were lost less than 90 s ago: the tables may be partial"
            )
        if outcome.complete and not working:
            for part in (one for one in parts if not one.problem):
                run.part(part.name).remove_unfinished()
        begun = None
        if then_rescue and outcome.missing_units and not working:
            begun = _next_round(session, outcome.missing_units, outcome.rejected)
        return Merged(
            outcome,
            units=len(session.bounds) - 1,
            missing=len(outcome.missing_units),
            duplicates=outcome.copies,
            working=working,
            next_round=begun,
        )


def _n_working(parts: Sequence[PartState]) -> int:
    return sum(part.state == "working" for part in parts)


def _settled(run: RunDirectory, reporter: Reporter) -> list[PartState]:
    reporter.stage(f"waiting up to {LOST_S:.0f} s for heartbeats of tasks")
    return settled_parts(run)


def rescue(
    root: Path,
    reporter: Reporter,
    *,
    workers: int | None = None,
    model: str | None = None,
    lock: bool = True,
) -> Round | None:
    """Begin a round for the units without a valid segment; return None if there is none.

    Parameters
    ----------
    workers
        Number of strides; None for that of the last round.
    model
        Bundle or encoder; None for that of the last round, or of the run, which need not be
        installed here.

    Raises
    ------
    NotARunError, IndexFormatError, RunLockedError, RunExistsError
        If the folder is not a run or is damaged, or another process works on it.
    UsageError, BundleError, FingerprintError
        If there is no such model, or it is not the model of the run.
    """
    with reopen_session(RunDirectory(root), lock=lock) as session:
        if model is not None:
            job_of_run(session.run, session.manifest, model)
        coverage = survey_segments(session, reporter)
        if not coverage.missing:
            return None
        return _next_round(session, coverage.missing, coverage.rejected_paths, workers, model)


_WORKERS = 16


def _next_round(
    session: Session,
    missing: tuple[int, ...],
    rejected: tuple[Path, ...],
    workers: int | None = None,
    model: str | None = None,
) -> Round:
    last = find_latest_round(session.run)
    return write_round(
        session.run,
        missing,
        workers or (last.strides if last else _WORKERS),
        model or (last.model if last else session.manifest.parameters["bundle"]),
        rejected,
    )

"""Write the tables of a run from the segments of all its parts, and begin further rounds."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from virnucpro.cluster.work import job_of_run
from virnucpro.compute.rounds import Round, find_latest_round, write_round
from virnucpro.run.calls import survey_segments
from virnucpro.run.outputs import write_outputs
from virnucpro.run.part_states import LOST_S, PartState, part_states, settled_parts
from virnucpro.run.reporter import Reporter
from virnucpro.run.run import Outcome, Run, reopened
from virnucpro.run_dir import RunDirectory


@dataclass(frozen=True, slots=True)
class Merged:
    """Result of a merge.

    Attributes
    ----------
    outcome
        Counts of the results.
    working
        Number of parts that were working when the merge began.
    next_round
        Round that was begun for the missing units; None if none was begun.
    """

    outcome: Outcome
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
        Whether to begin a round for the missing units, unless parts still work. A part that was
        killed on another machine is known after 90 s; the merge waits for that, unless every unit
        has a valid segment.
    lock
        Whether to lock the run; False on a file system without locks.
    report
        Whether a run of predict gets a report.html.

    Raises
    ------
    NotARunError, IndexFormatError, RunLockedError
        As `virnucpro.run.run.reopened`.
    OSError
        If an output cannot be written; earlier outputs are unchanged.
    """
    paths = RunDirectory(root)
    with reopened(paths, lock=lock) as run:
        paths.require_own_parts()
        parts = part_states(paths)
        found = {unit for unit, _ in paths.segments()}
        waits = then_rescue and _n_working(parts) > 0
        if waits and len(found) < run.n_units:
            parts, waits = _settled(paths, reporter), False
        outcome = write_outputs(run, reporter, report=report)
        if waits and outcome.missing_units:  # a segment cannot be used
            parts = _settled(paths, reporter)
            outcome = write_outputs(run, reporter, report=report)
        for part in parts:
            if part.problem:
                reporter.warn(f"{part.problem}: its task counts as lost")
        working = _n_working(parts)
        if working and not outcome.complete:
            reporter.warn(
                f"{working} tasks work, or were lost less than 90 s ago: the tables may be partial"
            )
        if outcome.complete and not working:
            for part in (part for part in parts if not part.problem):
                paths.part(part.name).remove_unfinished()
        begun = None
        if then_rescue and outcome.missing_units and not working:
            begun = _next_round(run, outcome.missing_units, outcome.rejected)
        return Merged(outcome, working, begun)


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
    with reopened(RunDirectory(root), lock=lock) as run:
        if model is not None:
            job_of_run(run, model)
        coverage = survey_segments(run, reporter)
        if not coverage.missing:
            return None
        return _next_round(run, coverage.missing, coverage.rejected_paths, workers, model)


_WORKERS = 16


def _next_round(
    run: Run,
    missing: tuple[int, ...],
    rejected: tuple[Path, ...],
    workers: int | None = None,
    model: str | None = None,
) -> Round:
    last = find_latest_round(run.paths)
    return write_round(
        run.paths,
        missing,
        workers or (last.strides if last else _WORKERS),
        model or (last.model if last else run.manifest.parameters["bundle"]),
        rejected,
    )

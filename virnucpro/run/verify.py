"""Verification of a run folder: check all files, and compare outputs with their segments."""

import filecmp
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from virnucpro.errors import IndexFormatError, NotARunError, StoreError
from virnucpro.folder_lock import is_held
from virnucpro.joined import remove
from virnucpro.run.calls import call_run
from virnucpro.run.manifest import read_manifest
from virnucpro.run.outputs import write_gaps, write_tables
from virnucpro.run.run import Run, run_lock
from virnucpro.run_dir import RunDirectory
from virnucpro.sequences.index import SequenceIndex
from virnucpro.store.aggregate import embeddings_problem
from virnucpro.store.coverage import Coverage, survey
from virnucpro.temporary import owned_prefix

_RESTORE = "restore the file from a copy, or replace the run with --force"
_RESTORE_RUN = "restore the file from a copy, or start the run anew in another folder"


@dataclass(frozen=True, slots=True)
class Problem:
    """A file whose content is wrong; `repair_run` removes the file if `damaged_segment` is true."""

    path: Path
    reason: str
    remedy: str
    damaged_segment: bool = False


@dataclass(frozen=True, slots=True)
class Verification:
    """Result of a verification.

    Attributes
    ----------
    problems
        Files with wrong content: run.json first, then index, segments, outputs.
    notes
        Skipped checks, and outputs that differ in an incomplete run.
    units, units_missing
        Number of units, and the units without a valid segment. If the index or run.json is damaged,
        segments and outputs are not checked: `units` is None and `units_missing` is empty.
    removed
        Files that a repair removed.
    """

    root: Path
    problems: tuple[Problem, ...]
    notes: tuple[str, ...] = ()
    units: int | None = None
    units_missing: tuple[int, ...] = ()
    removed: tuple[Path, ...] = ()

    def as_text(self) -> str:
        """Return the text that ``virnucpro verify`` prints."""
        lines = [
            f"{problem.path}: {problem.reason}\n  {problem.remedy}" for problem in self.problems
        ]
        lines += [f"note: {note}" for note in self.notes]
        lines += [f"removed: {path}" for path in self.removed]
        lines.append(f"{self.root}: {len(self.problems)} problems{self._units_text()}")
        return "\n".join(lines)

    def _units_text(self) -> str:
        if self.units is None:
            return ", coverage unknown"
        if not self.units_missing:
            return f", all {self.units:,} units valid"
        missing = f"{len(self.units_missing):,} of {self.units:,} units missing"
        return f", {missing}: {_recompute(RunDirectory(self.root))}"


def verify_run(run: RunDirectory) -> Verification:
    """Check all files of a run, without a change to them.

    The check covers run.json, the index, every segment (checksum, fingerprint, shapes, finite
    numbers) and the rows in the segments. The tables are written again into a temporary folder
    and compared byte by byte; embeddings.h5 is compared directly with the segments. Copies of
    embeddings.h5 in other formats, reports, status.json, launches and logs are not checked: nothing
    is computed from them. Outputs are not checked while a process works in
    the folder. If units are missing, a differing output is reported as a note: it may belong to an
    earlier state of the run, and a resume replaces it.

    Raises
    ------
    NotARunError
        If there is no run.json.
    RunError
        If a file of the run is not a regular file.
    OSError
        If a file cannot be read for a reason other than its content.
    """
    return _verify(run, outputs=not is_held(run.lock))


def _verify(paths: RunDirectory, *, outputs: bool) -> Verification:
    run, problems = _opened(paths)
    if run is None:
        return Verification(
            paths.root,
            tuple(problems),
            ("segments and outputs not checked: fix these problems first",),
        )
    coverage = survey(paths, run.bounds, run.manifest.fingerprint)
    again = _recompute(paths)
    repair = f"virnucpro verify {paths.root} --repair, then {again}"
    for path, reason, damaged in coverage.rejected:
        remedy = repair if damaged else f"move it out of the run, then {again}"
        problems.append(Problem(path, reason.removeprefix(f"{path}: "), remedy, damaged))
    notes = []
    if not outputs:
        notes = [
            "outputs not checked: a process is working in this folder; verify again after its end"
        ]
    else:
        differing = _output_problems(run, coverage)
        if coverage.missing:
            notes = [f"{problem.path}: {problem.reason}" for problem in differing]
        else:
            problems += differing
    return Verification(paths.root, tuple(problems), tuple(notes), run.n_units, coverage.missing)


def _recompute(run: RunDirectory) -> str:
    """Return the advice for units without a valid segment."""
    tasks = ", or its tasks" if run.attempts() else ""
    return f"rerun the run's command with --resume{tasks}"


def repair_run(run: RunDirectory, *, lock: bool = True) -> Verification:
    """Verify a run and remove its damaged segments; all other files are kept.

    Returns
    -------
    The state after the repair. A resume computes the units of the removed segments.

    Raises
    ------
    RunLockedError
        If another process works on the run.
    """
    if not run.run_json.exists():  # no lock file in a folder that is not a run
        read_manifest(run)
    with run_lock(run, lock=lock):
        run.require_own_attempts()
        found = _verify(run, outputs=True)
        bad = tuple(problem.path for problem in found.problems if problem.damaged_segment)
        for path in bad:
            remove(path)
        return replace(_verify(run, outputs=True) if bad else found, removed=bad)


def _opened(paths: RunDirectory) -> tuple[Run | None, list[Problem]]:
    """Return the run, or None with the problems of run.json and index."""
    manifest, problems = None, []
    try:
        manifest = read_manifest(paths)
    except NotARunError as error:
        if not paths.run_json.exists():
            raise
        problems.append(Problem(paths.run_json, str(error), _RESTORE_RUN))
    try:
        index = SequenceIndex.open(paths.index)
    except IndexFormatError as error:
        return None, [*problems, Problem(paths.index, str(error), _RESTORE)]
    problems += [Problem(path, reason, _RESTORE) for path, reason in index.changed_columns()]
    if manifest and index.fingerprint != manifest.index_fingerprint:
        reason = f"belongs to another run than {paths.run_json}"
        problems.append(Problem(paths.index, reason, _RESTORE))
    return (Run.of(paths, manifest, index) if manifest and not problems else None), problems


def _output_problems(run: Run, coverage: Coverage) -> Iterator[Problem]:
    """Yield a problem for each output file whose content differs from the segments."""
    remedy = f"virnucpro aggregate {run.paths.root}"
    with tempfile.TemporaryDirectory(prefix=owned_prefix("verify")) as name:
        expected = RunDirectory(Path(name))
        scores = call_run(run, coverage)
        write_tables(expected, run.manifest, scores)
        write_gaps(expected, scores)
        for path in run.paths.tables:
            made = expected.root / path.relative_to(run.paths.root)
            if reason := _table_problem(made, path, complete=not coverage.missing):
                yield Problem(path, reason, remedy)
    if problem := _embeddings_problem(run, coverage):
        yield Problem(run.paths.embeddings, problem, remedy)


def _table_problem(made: Path, kept: Path, *, complete: bool) -> str:
    """Compare the table `kept` with the new table `made`; return a description of a difference.

    Return "" if both files are equal or missing, or if `kept` is missing in an incomplete run.
    """
    if not kept.exists():
        return "is missing" if made.exists() and complete else ""
    if made.exists() and filecmp.cmp(made, kept, shallow=False):
        return ""
    return "differs from the segments: the file was edited, or an earlier state of the run wrote it"


def _embeddings_problem(run: Run, coverage: Coverage) -> str | None:
    path = run.paths.embeddings
    if not run.stores_vectors:
        return None
    if not path.exists():
        return None if coverage.missing else "is missing"
    try:
        views, about = run.manifest.views, run.manifest.about_vectors
        return embeddings_problem(path, coverage, run.index, views, about)
    except StoreError as error:
        return str(error)

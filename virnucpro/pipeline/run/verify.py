"""Verification of a run folder: check all files, and compare outputs with their segments."""

import filecmp
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from virnucpro.errors import IndexFormatError, NotARunError, StoreError
from virnucpro.folder_lock import is_held
from virnucpro.pipeline.run.manifest import Manifest, read_manifest
from virnucpro.pipeline.run.outputs import write_gaps, write_tables
from virnucpro.pipeline.run.part_states import refuse_live_parts
from virnucpro.pipeline.run.session import Session, run_lock, session_of
from virnucpro.run_dir import RunDirectory
from virnucpro.sequences.index import SequenceIndex
from virnucpro.store.aggregate import embeddings_problem
from virnucpro.store.coverage import Coverage, survey

__all__ = ["Problem", "Verification", "repair_run", "verify_run"]

_RESTORE = "restore the file from a copy, or replace the run with --force"


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
        lines = [f"{one.path}: {one.reason}\n  {one.remedy}" for one in self.problems]
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
    numbers) and the rows in the segments. The tables are written again into a temporary folder and
    compared byte by byte; embeddings.h5 is compared directly with the segments. Outputs are not
    checked while a process works in the folder. If units are missing, a differing output is
    reported as a note: it may belong to an earlier state of the run, and a resume replaces it.

    Raises
    ------
    NotARunError
        If there is no run.json.
    RunError
        If a file of the run is not a regular file.
    OSError
        If a file cannot be read for a reason other than its content.
    """
    run.require_regular_files()
    return _verify(run, outputs=not is_held(run.lock))


def _verify(run: RunDirectory, *, outputs: bool) -> Verification:
    manifest, problems = _manifest(run)
    index, index_problems = _index(run, manifest)
    problems += index_problems
    if manifest is None or index is None:
        return Verification(
            run.root,
            tuple(problems),
            ("segments and outputs not checked: fix these problems first",),
        )
    session = session_of(run, manifest, index)
    coverage = survey(run, session.bounds, manifest.fingerprint)
    again = _recompute(run)
    repair = f"virnucpro verify {run.root} --repair, then {again}"
    for path, reason, damaged in coverage.rejected:
        remedy = repair if damaged else f"move it out of the run, then {again}"
        problems.append(Problem(path, reason.removeprefix(f"{path}: "), remedy, damaged))
    notes = []
    if not outputs:
        notes = [
            "outputs not checked: a process is working in this folder; verify again after its end"
        ]
    else:
        differing = _output_problems(session, coverage)
        if coverage.missing:
            notes = [f"{one.path}: {one.reason}" for one in differing]
        else:
            problems += differing
    n_units = len(session.bounds) - 1
    return Verification(run.root, tuple(problems), tuple(notes), n_units, coverage.missing)


def _recompute(run: RunDirectory) -> str:
    """Return the advice for units without a valid segment."""
    if run.round_numbers():
        return f"run virnucpro rescue {run.root}, then virnucpro submit or work"
    return "rerun the run's command with --resume"


def repair_run(run: RunDirectory, *, lock: bool = True) -> Verification:
    """Verify a run and remove its damaged segments; all other files are kept.

    Returns
    -------
    The state after the repair. A resume computes the units of the removed segments.

    Raises
    ------
    RunLockedError
        If another process or a part of the run works.
    """
    _manifest(run)  # no lock file in a folder that is not a run
    with run_lock(run, lock=lock):
        refuse_live_parts(run, "repair the run")
        found = _verify(run, outputs=True)
        bad = tuple(one.path for one in found.problems if one.damaged_segment)
        for path in bad:
            path.unlink()
        return replace(_verify(run, outputs=True) if bad else found, removed=bad)


def _manifest(run: RunDirectory) -> tuple[Manifest | None, list[Problem]]:
    try:
        return read_manifest(run), []
    except NotARunError as error:
        if not run.run_json.exists():
            raise
        return None, [Problem(run.run_json, str(error), _RESTORE)]


def _index(
    run: RunDirectory, manifest: Manifest | None
) -> tuple[SequenceIndex | None, list[Problem]]:
    try:
        index = SequenceIndex.open(run.index)
    except IndexFormatError as error:
        return None, [Problem(run.index, str(error), _RESTORE)]
    problems = [Problem(path, reason, _RESTORE) for path, reason in index.changed_files()]
    if manifest and index.fingerprint != manifest.index_fingerprint:
        problems.append(Problem(run.index, f"belongs to another run than {run.run_json}", _RESTORE))
    return (None if problems else index), problems


def _output_problems(session: Session, coverage: Coverage) -> Iterator[Problem]:
    """Yield a problem for each output file whose content differs from the segments."""
    remedy = f"virnucpro aggregate {session.run.root}"
    with tempfile.TemporaryDirectory(prefix="virnucpro-verify-") as name:
        expected = RunDirectory(Path(name))
        records, _ = write_tables(expected, session, coverage)
        write_gaps(expected, session, coverage, records)
        for path in session.run.tables:
            made = expected.root / path.name
            if reason := _table_problem(made, path, complete=not coverage.missing):
                yield Problem(path, reason, remedy)
    if problem := _embeddings_problem(session, coverage):
        yield Problem(session.run.embeddings, problem, remedy)


def _table_problem(made: Path, kept: Path, *, complete: bool) -> str:
    """Compare the table `kept` with the new table `made`; return a description of a difference.

    Return "" if both files are equal or missing, or if `kept` is missing in an incomplete run.
    """
    if not kept.exists():
        return "is missing" if made.exists() and complete else ""
    if made.exists() and filecmp.cmp(made, kept, shallow=False):
        return ""
    return "differs from the segments: the file was edited, or an earlier state of the run wrote it"


def _embeddings_problem(session: Session, coverage: Coverage) -> str | None:
    path = session.run.embeddings
    if session.manifest.parameters["embeddings"] == "none":
        return None
    if not path.exists():
        return None if coverage.missing else "is missing"
    try:
        views, about = session.manifest.views, session.manifest.about_vectors
        return embeddings_problem(path, coverage, session.index, views, about)
    except StoreError as error:
        return str(error)

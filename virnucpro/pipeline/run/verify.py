"""Whether everything in a run folder is what was written: read back, checked, re-derived."""

import filecmp
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import NamedTuple

from virnucpro.errors import (
    DamagedSegmentError,
    IndexFormatError,
    NotARunError,
    SegmentError,
    StoreError,
)
from virnucpro.pipeline.run.manifest import Manifest, read_manifest
from virnucpro.pipeline.run.outputs import write_gaps, write_tables
from virnucpro.pipeline.run.run_lock import is_locked, run_lock
from virnucpro.pipeline.run.session import Session
from virnucpro.run_dir import RunDirectory
from virnucpro.sequences.index import SequenceIndex
from virnucpro.sequences.partition import unit_bounds
from virnucpro.store.aggregate import embeddings_problem
from virnucpro.store.coverage import Coverage, survey
from virnucpro.store.segment import read_segment

__all__ = ["Problem", "Verification", "repair_run", "verify_run"]

_MOVE_OUT = "move it out of the run, then repeat the run's command with --resume"
_RESTORE = "restore the file from a copy, or start the run anew (--force)"


class Problem(NamedTuple):
    """Something that is not as it was written.

    One with `damaged_segment` is a file that holds nothing any more: `repair_run` removes it.
    """

    path: Path
    reason: str
    remedy: str
    damaged_segment: bool = False


@dataclass(frozen=True, slots=True)
class Verification:
    """What was found in a run folder.

    Attributes
    ----------
    problems
        Everything that is not as it was written, in the order of the folder's layout.
    notes
        What was not checked, and why; outputs of another state of a run that is not complete.
    units, units_missing
        How many units there are, and which no valid segment holds. None, and empty, where the
        index or run.json is damaged.
    removed
        Files that a repair removed.
    """

    root: Path
    problems: tuple[Problem, ...]
    notes: tuple[str, ...] = ()
    units: int | None = None
    units_missing: tuple[int, ...] = ()
    removed: tuple[Path, ...] = ()

    def as_dict(self) -> Mapping[str, object]:
        """Give plain data for JSON."""
        return {
            **asdict(self),
            "root": str(self.root),
            "problems": [
                {"path": str(one.path), "reason": one.reason, "remedy": one.remedy}
                for one in self.problems
            ],
            "removed": [str(path) for path in self.removed],
        }

    def as_text(self) -> str:
        """Give lines for a person."""
        lines = [f"{one.path}: {one.reason}\n  {one.remedy}" for one in self.problems]
        lines += [f"note: {note}" for note in self.notes]
        lines += [f"removed: {path}" for path in self.removed]
        lines.append(f"{self.root}: {len(self.problems)} problems{self._units_text()}")
        return "\n".join(lines)

    def _units_text(self) -> str:
        if self.units is None:
            return ", coverage unknown"
        if not self.units_missing:
            return f", all {self.units:,} units whole"
        missing = f"{len(self.units_missing):,} of {self.units:,} units missing"
        return f", {missing}: repeat the run's command with --resume"


def verify_run(run: RunDirectory) -> Verification:
    """Read everything in a run folder and compare it with what was written. Changes nothing.

    Checked are run.json, every file of the index, every segment (checksum, fingerprint, shapes,
    finite numbers), which rows they cover, and every output: the tables are made anew in a
    temporary folder and compared byte for byte, so is embeddings.h5 without a copy of it. Outputs
    are left alone while a process is at work in the folder. Where units are missing, an output that
    differs is a note and no problem: it may show a state with more or fewer of them, and the resume
    writes it anew.

    Raises
    ------
    NotARunError
        When there is no run.json.
    OSError
        When the machine is at fault and not a file.
    """
    run.require_regular_files()
    return _verify(run, outputs=not is_locked(run))


def _verify(run: RunDirectory, *, outputs: bool) -> Verification:
    manifest, problems = _manifest(run)
    index, index_problems = _index(run, manifest)
    problems += index_problems
    if manifest is None or index is None:
        problems += _segments_alone(run, manifest)
        return Verification(run.root, tuple(problems))
    bounds = unit_bounds(index.row_lengths, manifest.units["rows"], manifest.units["positions"])
    coverage = survey(run, bounds, manifest.fingerprint)
    problems += [
        _segment_problem(run, path, reason, damaged=damaged)
        for path, reason, damaged in coverage.rejected
    ]
    notes = []
    if not outputs:
        notes = ["a process is at work in this folder: its outputs were not checked"]
    elif coverage.missing:
        differing = _output_problems(Session(run, manifest, index, bounds), coverage)
        notes = [f"{one.path}: {one.reason}" for one in differing]
    else:
        problems += _output_problems(Session(run, manifest, index, bounds), coverage)
    return Verification(run.root, tuple(problems), tuple(notes), len(bounds) - 1, coverage.missing)


def repair_run(run: RunDirectory) -> Verification:
    """Verify a run and remove the segments that are torn or flipped, nothing else ever.

    Returns
    -------
    The state after the repair; what was removed is missing now, and a resume computes it.

    Raises
    ------
    RunLockedError
        At once, when another process is at work in the folder.
    """
    _manifest(run)  # before a lock file is made in a folder that is no run
    with run_lock(run):
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


def _segment_problem(run: RunDirectory, path: Path, reason: str, *, damaged: bool) -> Problem:
    repair = f"virnucpro verify {run.root} --repair, then repeat the run's command with --resume"
    remedy = repair if damaged else _MOVE_OUT
    return Problem(path, reason.removeprefix(f"{path}: "), remedy, damaged)


def _segments_alone(run: RunDirectory, manifest: Manifest | None) -> Iterator[Problem]:
    """Check segments by themselves, where nothing says which rows they should hold."""
    for _, path in run.segments():
        try:
            segment = read_segment(path)
        except SegmentError as error:
            damaged = isinstance(error, DamagedSegmentError)
            yield _segment_problem(run, path, str(error), damaged=damaged)
            continue
        if manifest and segment.fingerprint != manifest.fingerprint:
            yield _segment_problem(run, path, "belongs to another run", damaged=False)


def _output_problems(session: Session, coverage: Coverage) -> Iterator[Problem]:
    """Compare every output with what the segments give."""
    remedy = f"virnucpro aggregate {session.run.root}"
    with tempfile.TemporaryDirectory(prefix="virnucpro-verify-") as name:
        wanted = RunDirectory(Path(name))
        records = write_tables(wanted, session, coverage)
        write_gaps(wanted, session, coverage, records)
        for made, kept in zip(_tables(wanted), _tables(session.run), strict=True):
            if reason := _table_problem(made, kept, complete=not coverage.missing):
                yield Problem(kept, reason, remedy)
    if problem := _embeddings_problem(session, coverage):
        yield Problem(session.run.embeddings, problem, remedy)


def _tables(run: RunDirectory) -> Sequence[Path]:
    return (
        run.predictions,
        run.windows,
        run.sequences,
        run.published_results,
        run.published_consensus,
        run.missing,
        run.quarantine,
    )


def _table_problem(made: Path, kept: Path, *, complete: bool) -> str:
    """Say what is wrong with a table; a run that is not complete need not have any yet."""
    if not kept.exists():
        return "is not there" if made.exists() and complete else ""
    if not made.exists():
        return "is of an earlier state of the run"
    if filecmp.cmp(made, kept, shallow=False):
        return ""
    rows, wanted = _rows(kept), _rows(made)
    if rows != wanted:
        return f"has {rows:,} rows, the segments give {wanted:,}"
    return "is not what the segments give: altered, or of an earlier state of the run"


def _rows(table: Path) -> int:
    with table.open("rb") as stream:
        return sum(1 for _ in stream) - 1


def _embeddings_problem(session: Session, coverage: Coverage) -> str | None:
    path = session.run.embeddings
    if session.manifest.parameters["embeddings"] == "none":
        return None
    if not path.exists():
        return None if coverage.missing else "is not there"
    try:
        return embeddings_problem(path, coverage, session.index, session.manifest.views)
    except StoreError as error:
        return str(error)

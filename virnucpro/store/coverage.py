"""Find which rows of a run are done, quarantined or missing, from its valid segments."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np

from virnucpro.arrays import (
    AnyArray,
    ByteArray,
    Float32Array,
    FloatArray,
    IntArray,
    RealArray,
    large_array,
)
from virnucpro.errors import DamagedSegmentError, SegmentError
from virnucpro.run_dir import RunDirectory
from virnucpro.store.schema import RowState
from virnucpro.store.segment import RECOMPUTE, Segment, named_unit, read_ahead, read_segment

_DONE: Final = int(RowState.DONE)
"""NumPy compares an array with an int in half the time that a member of an enumeration takes."""

ROUNDING = 0.02
"""Maximum difference between two copies of a segment.

The difference of vectors is relative to their length; the difference of scores is absolute.

Measured with `mini`: vectors differ by 0.0005 of their length between batch sizes at bf16, by 0.005
between bf16 and fp32 (scores: by 0.013), and by 0.18 from the most similar vector of another row.
"""


def difference(segment: Segment, other: Segment, *, states: bool = True) -> str:
    """Describe the first difference of two segments that exceeds `ROUNDING`; return "" for none.

    Texts of quarantine reasons are not compared. With ``states=False`` only the rows are compared
    that are done in both segments: a row can kill its worker on one device only.
    """
    if not np.array_equal(segment.rows, other.rows):
        return "different rows"
    if states and not np.array_equal(segment.state, other.state):
        row = segment.rows[(segment.state != other.state).argmax()]
        return f"different states of row {row:,}"
    done = np.flatnonzero((segment.state == RowState.DONE) & (other.state == RowState.DONE))
    vectors, owners = _vectors_of(segment, done)
    others, owners_there = _vectors_of(other, done)
    if not np.array_equal(owners, owners_there):
        return "different numbers of vectors"
    ours, theirs = (None if one.scores is None else one.scores[done] for one in (segment, other))
    return _apart("embeddings", vectors, others, owners) or _apart(
        "scores", ours, theirs, segment.rows[done]
    )


def _vectors_of(segment: Segment, done: IntArray) -> tuple[RealArray | None, IntArray]:
    """Return the vectors of the rows at the positions `done`, and the row of each vector."""
    rows = segment.rows if segment.counts is None else np.repeat(segment.rows, segment.counts)
    chosen = np.isin(rows, segment.rows[done])
    vectors = segment.embeddings
    return vectors if vectors is None else vectors[chosen], rows[chosen]


def _apart(name: str, left: RealArray | None, right: RealArray | None, rows: IntArray) -> str:
    """Describe the first difference of two arrays, whose lines belong to `rows`."""
    if left is None and right is None:
        return ""
    if left is None or right is None or (left.shape, left.dtype) != (right.shape, right.dtype):
        return f"{name} of different shapes or types"
    distances = _distances(left, right, relative=name == "embeddings")
    far = np.unique(rows[distances > ROUNDING])
    return f"different {name} of {len(far):,} rows, first row {far[0]:,}" if far.size else ""


def _distances(left: RealArray, right: RealArray, *, relative: bool) -> FloatArray:
    """Return the distance between `left` and `right` for each line.

    If `relative` is True, the distance is the Euclidean distance divided by the length of the
    longer vector. If False, the distance is the largest absolute difference.
    """
    first, second = left.astype(np.float64), right.astype(np.float64)
    apart = first - second
    distances: FloatArray = np.abs(apart).max(axis=1, initial=0)
    if relative:
        lengths = np.maximum(np.linalg.norm(first, axis=1), np.linalg.norm(second, axis=1))
        distances = np.linalg.norm(apart, axis=1) / np.maximum(lengths, np.finfo(float).tiny)
    return distances


class RejectedFile(NamedTuple):
    """An unused file with the name of a segment; `reason` is the text of the cause.

    If `damaged`, the file is a segment with wrong content. It cannot be used and may be deleted.
    """

    path: Path
    reason: str
    damaged: bool


@dataclass(frozen=True, eq=False, slots=True)
class Coverage:
    """State of every row of a run, and the segment files in use.

    Attributes
    ----------
    bounds : numpy.ndarray
        int64 (n_units + 1,); unit u contains the rows ``bounds[u]:bounds[u + 1]``. For segments of
        an unknown run, its units are the rows of each segment, and those between two segments.
    fingerprint : str
        Fingerprint of the run and of every segment in use.
    done : mapping of int to Path
        Segment file in use of each done unit; the units are ascending.
    missing : tuple of int
        The units without a valid segment, ascending: the plan of the next launch.
    rejected : tuple of RejectedFile
        Unused files that are named like segments, with reasons.
    row_state : numpy.ndarray
        uint8 (n_rows,), codes of `RowState`.
    scores : numpy.ndarray
        float32 (n_rows, 2), scores of `others` and `virus`; if the classifier has more classes,
        float32 (n_rows, 2 + n_classes), followed by the probability of each class. NaN for missing
        and quarantined rows, and in runs without a classifier.
    reasons : mapping of int to str
        Reason of each quarantined row, if known.
    all_known : bool
        Whether the number of rows of the run is known.
    """

    bounds: IntArray
    fingerprint: str
    done: Mapping[int, Path]
    missing: tuple[int, ...]
    rejected: tuple[RejectedFile, ...]
    row_state: ByteArray
    scores: Float32Array
    reasons: Mapping[int, str]
    all_known: bool = True

    @property
    def complete(self) -> bool:
        """Whether it is known that no row of the run is missing."""
        return self.all_known and not self.missing

    @property
    def gaps(self) -> list[tuple[int, int]]:
        """The rows without a segment, as ``(first, last + 1)``, ascending."""
        missing = self.row_state == RowState.MISSING
        edges = np.flatnonzero(np.diff(missing, prepend=False, append=False))
        return [(first, end) for first, end in edges.reshape(-1, 2).tolist()]

    @property
    def rejected_paths(self) -> tuple[Path, ...]:
        """The paths of the unused files."""
        return tuple(file.path for file in self.rejected)


def survey(
    source: RunDirectory | Sequence[Path],
    bounds: IntArray | None = None,
    fingerprint: str | None = None,
) -> Coverage:
    """Verify segments; return the state of each row of their run.

    If a unit has several segments, the first valid segment in path order is used. Another copy is
    rejected if it differs by more than `ROUNDING`. Threads read and verify the next segments. This
    needs the memory of six segments, and one byte per row; the scores are in `large_array`.

    Parameters
    ----------
    source : RunDirectory or sequence of Path
        A run with all its shards, where other files are rejected, also copied ones; or segment
        files of any names, which must belong to one run. No file is written.
    bounds : numpy.ndarray, optional
        int64 (n_units + 1,), ascending from 0: first row of each unit, then the number of rows.
        None for files whose run is unknown.
    fingerprint : str, optional
        Fingerprint of the run; None for that of the first file.

    Raises
    ------
    SegmentError
        If one of the given files is not a segment, belongs to another run or differs from another
        copy, or if no file is a valid segment. Damaged segments raise no error.
    OSError
        If an error does not depend on the file, such as too many open files; see `read_segment`.
    """
    reading = Survey(source, bounds, fingerprint)
    for _ in reading.read():
        pass
    return reading.coverage()


def coverage_of(segments: Sequence[Segment], bounds: IntArray, fingerprint: str) -> Coverage:
    """Return the coverage of segments in memory: one for each unit of a run, ascending."""
    state = np.full(bounds[-1], RowState.MISSING, np.uint8)
    widths = [2, *(first.scores.shape[1] for first in segments[:1] if first.scores is not None)]
    scores = np.full((len(state), max(widths)), np.nan, np.float32)
    for segment in segments:
        _record(segment, state, scores)
    reasons = {row: why for segment in segments for row, why in segment.reasons.items()}
    return Coverage(bounds, fingerprint, {}, (), (), state, scores, reasons)


def coverage_of_rows(
    arrays: Mapping[str, AnyArray], width: int, reasons: Mapping[int, str]
) -> Coverage:
    """Return the coverage of the rows of one block.

    Parameters
    ----------
    arrays
        Arrays of a `BlockSegment`; without `row_state`, all rows of its index are missing.
    width
        Number of scores of a row.
    reasons
        Reason of each quarantined row.
    """
    n_rows = len(arrays["row_lengths"])
    state = arrays.get("row_state", np.full(n_rows, RowState.MISSING, np.uint8))
    scores = np.full((n_rows, width), np.nan, np.float32)
    if "row_scores" in arrays:
        done = state == _DONE
        scores[done] = arrays["row_scores"][done]
    missing = () if "row_state" in arrays or not n_rows else (0,)
    return Coverage(np.array([0, n_rows]), "", {}, missing, (), state, scores, reasons)


class Survey:
    """Check of segments as in `survey`; the caller receives each segment in use.

    The caller iterates over `read`, then calls `coverage`. See `survey` for parameters and errors.
    """

    def __init__(
        self,
        source: RunDirectory | Sequence[Path],
        bounds: IntArray | None = None,
        fingerprint: str | None = None,
    ) -> None:
        self._loose = not isinstance(source, RunDirectory)
        if isinstance(source, RunDirectory):
            self._files = source.segments()
        else:
            self._files = [(named_unit(path) or 0, path) for path in sorted(source)]
        self._bounds = bounds
        self._fingerprint = fingerprint
        n_rows = 0 if bounds is None else int(bounds[-1])
        self._state = np.full(n_rows, RowState.MISSING, np.uint8)
        self._scores = _without_scores(n_rows, 2)
        self._reasons: dict[int, str] = {}
        self._done: dict[int, Path] = {}
        self._first_rows: dict[int, int] = {}
        self._rejected: list[RejectedFile] = []

    @property
    def n_rows(self) -> int:
        """Number of rows of the run; 0 before `read` if the run is unknown."""
        return len(self._state)

    def read(self) -> Iterator[tuple[Path, Segment]]:
        """Yield path and content of each segment in use, from the last unit to the first.

        In this order `in_ranges` knows the rare short rows when rows of the commonest length
        follow. A copy with fewer quarantined rows follows the segment that it replaces.
        """
        files = sorted(self._files, key=lambda file: -file[0])  # of each unit in path order
        read = partial(_read_or_reject, any_name=self._loose)
        for path, segment in read_ahead(read, (path for _, path in files)):
            if isinstance(segment, RejectedFile):
                self._reject(segment)
                continue
            self._fingerprint = self._fingerprint or segment.fingerprint
            unit = segment.unit
            if problem := _misfit(segment, self._bounds, self._fingerprint):
                self._reject(RejectedFile(path, f"{path}: {problem}", damaged=False))
            elif unit in self._done and (differs := _difference(self._done[unit], segment)):
                reason = (
                    f"{path}: {differs} compared with {self._done[unit]}, which is used. Move one "
                    "of the two files out of the run."
                )
                self._reject(RejectedFile(path, reason, damaged=False))
            elif unit not in self._done or _quarantined(segment.state) < _quarantined(
                self._state[segment.rows[0] : segment.rows[-1] + 1]
            ):
                self._use(path, segment)
                yield path, segment

    def coverage(self) -> Coverage:
        """Return the coverage (state of each row) of all segments that `read` has read."""
        if self._loose and not self._done:
            raise SegmentError(
                f"none of {len(self._files):,} files is a valid segment. Give other files."
            )
        bounds, done = self._bounds, dict(sorted(self._done.items()))
        if bounds is None:
            bounds, done = self._units_of_segments()
        place = {path: number for number, (_, path) in enumerate(self._files)}
        return Coverage(
            bounds,
            self._fingerprint or "",
            done,
            tuple(unit for unit in range(len(bounds) - 1) if unit not in done),
            tuple(sorted(self._rejected, key=lambda file: place[file.path])),
            self._state,
            self._scores,
            dict(sorted(self._reasons.items())),
            self._bounds is not None,
        )

    def _units_of_segments(self) -> tuple[IntArray, dict[int, Path]]:
        """Return bounds of all segments and of the rows between them, and the files by unit."""
        known = self._state != RowState.MISSING
        changes = np.flatnonzero(np.diff(known, prepend=False)).tolist()
        firsts = sorted((row, unit) for unit, row in self._first_rows.items())
        bounds = np.unique([0, *changes, *(row for row, _ in firsts), len(self._state)])
        units = np.searchsorted(bounds, [row for row, _ in firsts]).tolist()
        files = (self._done[unit] for _, unit in firsts)
        return bounds, dict(zip(units, files, strict=True))

    def _reject(self, file: RejectedFile) -> None:
        if self._loose and not file.damaged:
            raise SegmentError(file.reason)
        self._rejected.append(file)

    def _use(self, path: Path, segment: Segment) -> None:
        self._done[segment.unit] = path
        self._first_rows[segment.unit] = int(segment.rows[0])
        if added := max(0, int(segment.rows[-1]) + 1 - len(self._state)):  # of an unknown run
            self._state = np.pad(self._state, (0, added), constant_values=RowState.MISSING)
            self._scores = np.pad(self._scores, ((0, added), (0, 0)), constant_values=np.nan)
        if segment.scores is not None and segment.scores.shape[1] > self._scores.shape[1]:
            known = self._scores
            self._scores = _without_scores(len(known), segment.scores.shape[1])
            self._scores[:, : known.shape[1]] = known
        _record(segment, self._state, self._scores)
        for row in segment.rows.tolist() if self._reasons else ():
            self._reasons.pop(row, None)
        self._reasons.update(segment.reasons)


def valid_segment(run: RunDirectory, unit: int, bounds: IntArray, fingerprint: str) -> Path | None:
    """Return the valid segment file of `unit` in any shard; None if there is none.

    Segments are read in path order until a valid segment is found, as in `survey`. Parameters and
    errors are as for `survey`.
    """
    for path in run.copies(unit):
        if _is_valid(path, bounds, fingerprint):
            return path
    return None


def missing_units(
    run: RunDirectory, units: Collection[int], bounds: IntArray, fingerprint: str
) -> list[int]:
    """Return those of `units` that have no valid segment, ascending; read no other segment.

    Parameters and errors are as for `survey`.
    """
    missing = {*units}
    for unit, path in run.segments():
        if unit in missing and _is_valid(path, bounds, fingerprint):
            missing.remove(unit)
    return sorted(missing)


def _is_valid(path: Path, bounds: IntArray, fingerprint: str) -> bool:
    segment = _read_or_reject(path)
    return isinstance(segment, Segment) and not _misfit(segment, bounds, fingerprint)


def _read_or_reject(path: Path, *, any_name: bool = False) -> Segment | RejectedFile:
    try:
        return read_segment(path, any_name=any_name)
    except SegmentError as error:
        return RejectedFile(path, str(error), isinstance(error, DamagedSegmentError))


def _misfit(segment: Segment, bounds: IntArray | None, fingerprint: str) -> str:
    """Return why a valid segment does not belong to a run; "" if it belongs to the run."""
    if segment.fingerprint != fingerprint:
        return (
            f"belongs to a run with fingerprint {segment.fingerprint[:12]}, but this run "
            f"has {fingerprint[:12]}. Move the file out of the run, or pass the folder of the run "
            "that wrote the segments."
        )
    first, last = int(segment.rows[0]), int(segment.rows[-1]) + 1
    if bounds is not None:
        if segment.unit >= len(bounds) - 1:
            return (
                f"unit {segment.unit} is not in the run, which has {len(bounds) - 1} units. "
                "Move the file out of the run."
            )
        first, last = bounds[segment.unit : segment.unit + 2].tolist()
    if not np.array_equal(segment.rows, np.arange(first, last)):
        return (
            f"its rows are not {first} to {last - 1}, the rows of unit {segment.unit}. Move the "
            f"file out of the run; {RECOMPUTE}."
        )
    return ""


def _difference(path: Path, copy: Segment) -> str:
    """Describe the difference between `copy` and the segment file `path`; return "" for none."""
    try:
        return difference(read_segment(path, any_name=True), copy, states=False)
    except SegmentError:
        return ""  # `path` was damaged after its first read; the next reader reports the damage


def _quarantined(state: ByteArray) -> int:
    return int((state == RowState.QUARANTINED).sum())


def _without_scores(n_rows: int, n_columns: int) -> Float32Array:
    scores: Float32Array = large_array((n_rows, n_columns), np.float32)
    scores[:] = np.nan
    return scores


def _record(segment: Segment, state: ByteArray, scores: Float32Array) -> None:
    """Copy the states and scores of `segment` into `state` and `scores`, the arrays of all rows."""
    first, last = int(segment.rows[0]), int(segment.rows[-1]) + 1
    state[first:last] = segment.state
    scores[first:last] = np.nan
    if segment.scores is None:
        return
    done = segment.state == _DONE
    if done.all():
        scores[first:last] = segment.scores
    else:
        scores[first:last][done] = segment.scores[done]

"""Find and check segment files in any folders, without the folder of their run."""

import filecmp
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from virnucpro.errors import DamagedSegmentError, InputError, StoreError
from virnucpro.store.coverage import RejectedFile, difference
from virnucpro.store.schema import RowState
from virnucpro.store.segment import Segment, named_unit, read_segment, read_segments

__all__ = ["LooseCoverage", "LooseSurvey", "RowNames", "find_segments", "survey_loose"]

_IN_RUN = "shards/rank-*/unit-*.h5"
_PATTERNS = ("unit-*.h5", "rank-*/unit-*.h5", _IN_RUN, f"parts/*/{_IN_RUN}")

IntArray = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False, slots=True)
class LooseCoverage:
    """State of each row of one run, computed from segment files in any folders.

    Attributes
    ----------
    fingerprint : str
        Fingerprint of the run and of every segment.
    done : mapping of (int, int) to Path
        Segment file in use of each range of rows (first row, last row + 1), ascending.
    row_state : numpy.ndarray
        uint8 (n_rows,), codes of `RowState`. If the run's number of rows is unknown, the array ends
        with the last segment.
    gaps : tuple of (int, int)
        Rows without a segment, as ``(first, last + 1)``.
    rejected : tuple of RejectedFile
        Damaged segments, which are not used.
    notes : tuple of str
        One text per copy that differs from the copy in use by rounding.
    n_rows : int or None
        Number of rows of the run; None if unknown.
    """

    fingerprint: str
    done: Mapping[tuple[int, int], Path]
    row_state: npt.NDArray[np.uint8]
    gaps: tuple[tuple[int, int], ...]
    rejected: tuple[RejectedFile, ...]
    notes: tuple[str, ...]
    n_rows: int | None

    @property
    def complete(self) -> bool:
        """Whether the run's number of rows is known and no row is missing."""
        return self.n_rows is not None and not self.gaps


class RowNames:
    """Replacement for a `SequenceIndex`: each row is an item, and its name is the row number.

    Rows without a segment are included only if the run's number of rows is known.
    """

    def __init__(self, coverage: LooseCoverage) -> None:
        known = coverage.row_state != RowState.MISSING
        self.item_row: IntArray = np.flatnonzero(known | (coverage.n_rows is not None))
        self.n_items = len(self.item_row)

    @property
    def input_names(self) -> Sequence[str]:
        """Empty: the input files are unknown."""
        return ()

    def item_origins(self, items: IntArray) -> tuple[IntArray, IntArray]:
        """Return 0 as the file of each item, and the number of its row, from 1."""
        return np.zeros_like(items), self.item_row[items] + 1

    def item_names(self, items: IntArray) -> list[str]:
        """Return the name of each item: the number of the item's row, as text."""
        return list(map(str, self.item_row[items].tolist()))


class _Span(NamedTuple):
    """A segment file with the rows ``first`` to ``last - 1``, and the states of these rows."""

    first: int
    last: int
    path: Path
    fingerprint: str
    state: npt.NDArray[np.uint8]


def find_segments(paths: Sequence[Path]) -> list[Path]:
    """Return the files in `paths`, and the segment files in the folders in `paths`.

    Each folder is a shard, a folder of shards, or a run folder. Temporary files are ignored.

    Raises
    ------
    InputError
        If a path does not exist, or is a folder without segments.
    """
    found: list[Path] = []
    for path in paths:
        if path.is_dir():
            inside = sorted(one for pattern in _PATTERNS for one in path.glob(pattern))
            if not inside:
                raise InputError(
                    f"{path}: the folder has no segments (unit-*.h5). Give a shard folder or a run "
                    "folder."
                )
            found += inside
        elif path.exists():
            found.append(path)
        else:
            raise InputError(f"{path}: no such file or folder. Check the path.")
    return list(dict.fromkeys(found))


def survey_loose(paths: Sequence[Path], n_rows: int | None = None) -> LooseCoverage:
    """Read and verify segments; return the rows that these segments contain.

    If copies of a segment differ by rounding only (`coverage.ROUNDING`), the first copy in path
    order is used. This needs the memory of a few segments, and 10 bytes per row.

    Parameters
    ----------
    paths : sequence of Path
        Files from `find_segments`.
    n_rows : int, optional
        Number of rows of the run, if known.

    Raises
    ------
    SegmentError
        If a file is not a segment, or has another format version. A damaged segment raises no
        error; it is listed in `rejected`.
    StoreError
        If files belong to different runs, copies of a unit differ, or a row is not in the run; or
        if no file is a valid segment.
    """
    survey = LooseSurvey(paths, n_rows)
    for _ in survey.read():
        pass
    return survey.coverage()


class LooseSurvey:
    """Check of segments as in `survey_loose`; the caller receives each valid segment.

    The caller iterates over `read`, then calls `coverage`. See `survey_loose` for errors.
    """

    def __init__(self, paths: Sequence[Path], n_rows: int | None = None) -> None:
        self._paths = sorted(paths)
        self._n_rows = n_rows
        self._spans: list[_Span] = []
        self._rejected: list[RejectedFile] = []

    def read(self) -> Iterator[tuple[Path, Segment]]:
        """Yield path and content of valid segments, from the last unit to the first.

        The order is that of `Survey.read` if files are named by their units, but the lowest path is
        read first. A copy with a lower path follows the segment that it replaces. Segments of
        another run than that of the first segment are not yielded.
        """
        used = dict[int, Path]()
        others = sorted(self._paths[1:], key=lambda path: -(named_unit(path) or 0))
        for path, segment in read_segments([*self._paths[:1], *others]):
            if isinstance(segment, DamagedSegmentError):
                self._rejected.append(RejectedFile(path, str(segment), damaged=True))
            else:
                span = _span(path, segment, self._n_rows)
                self._spans.append(span)
                own = span.fingerprint == self._spans[0].fingerprint
                if own and path <= used.get(span.first, path):
                    used[span.first] = path
                    yield path, segment

    def coverage(self) -> LooseCoverage:
        """Return the coverage (state of each row) of all segments that `read` has read."""
        if not self._spans:
            raise StoreError(
                f"none of {len(self._rejected):,} files is a valid segment. Give other files."
            )
        _refuse_other_runs(sorted(self._spans, key=lambda span: span.path))
        spans, notes = _distinct(sorted(self._spans, key=lambda span: span[:3]))
        n_rows = spans[-1].last if self._n_rows is None else self._n_rows
        state = np.full(n_rows, RowState.MISSING, np.uint8)
        for span in spans:
            state[span.first : span.last] = span.state
        edges = [(0, 0), *((span.first, span.last) for span in spans), (n_rows, n_rows)]
        return LooseCoverage(
            fingerprint=spans[0].fingerprint,
            done={(span.first, span.last): span.path for span in spans},
            row_state=state,
            gaps=tuple((end, start) for (_, end), (start, _) in pairwise(edges) if end < start),
            rejected=tuple(sorted(self._rejected)),
            notes=notes,
            n_rows=self._n_rows,
        )


def _span(path: Path, segment: Segment, n_rows: int | None) -> _Span:
    first, last = int(segment.rows[0]), int(segment.rows[-1]) + 1
    if first < 0 or last - first != len(segment.rows):
        raise StoreError(f"{path}: the rows are not consecutive. Remove the file from the command.")
    if n_rows is not None and last > n_rows:
        raise StoreError(
            f"{path}: has row {last - 1:,}, but the index has {n_rows:,} rows, so the file belongs "
            "to another run. Remove the file from the command, or use the index of its run."
        )
    return _Span(first, last, path, segment.fingerprint, segment.state.copy())


def _refuse_other_runs(spans: Sequence[_Span]) -> None:
    [(own, _)] = Counter(span.fingerprint for span in spans).most_common(1)
    known = next(span for span in spans if span.fingerprint == own)
    others = [str(span.path) for span in spans if span.fingerprint != own]
    if others:
        raise StoreError(
            f"these segments are not from the run of {known.path} (fingerprint {own[:12]}): "
            f"{', '.join(others[:10])}{' ...' if len(others) > 10 else ''}. "
            "Give segments of one run only."
        )


def _distinct(spans: Sequence[_Span]) -> tuple[list[_Span], tuple[str, ...]]:
    """Return the first copy of each unit, and a message for each copy that differs by rounding.

    `spans` are sorted by rows, then by path.
    """
    kept, notes = [spans[0]], []
    for span in spans[1:]:
        counted = kept[-1]
        if span.first >= counted.last:
            kept.append(span)
        elif not filecmp.cmp(span.path, counted.path, shallow=False):
            copies = [read_segment(one.path, any_name=True) for one in (counted, span)]
            if differs := difference(*copies):
                raise StoreError(
                    f"{span.path} and {counted.path} both have row {span.first:,} and differ: "
                    f"{differs}. Remove one of the two files from the command."
                )
            notes.append(f"{counted.path} is used; {span.path} differs from it by rounding")
    return kept, tuple(notes)

"""Segments without their run: shards copied from anywhere, any part of them, in any order."""

import filecmp
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from virnucpro.errors import DamagedSegmentError, InputError, StoreError
from virnucpro.store.copies import difference
from virnucpro.store.coverage import RejectedFile
from virnucpro.store.schema import RowState
from virnucpro.store.segment import Segment, read_segment
from virnucpro.store.sources import read_ahead

__all__ = ["LooseCoverage", "RowNames", "find_segments", "survey_loose"]

_GAP_ROWS = 2048
"""Rows of a gap that are treated at a time, as if they were a unit."""

IntArray = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False, slots=True)
class LooseCoverage:
    """What some segments of one run cover, the run itself being elsewhere.

    Attributes
    ----------
    rows : numpy.ndarray
        int64 (n_rows,): the run's rows that are covered here, ascending; all of the run's where
        their number was told.
    bounds : numpy.ndarray
        int64 (n_blocks + 1,), positions in `rows`: a block is a segment or a piece of a gap.
    fingerprint : str
        Borne by every segment.
    done : mapping of int to Path
        Block -> the segment that holds it.
    missing : tuple of int
        Blocks that no segment holds; none where the number of rows was not told.
    row_state : numpy.ndarray
        uint8 (n_rows,), codes of `RowState`.
    gaps : tuple of (int, int)
        Rows without a segment, as ``(first, last + 1)``. What comes behind the last segment is
        known only where the number of rows was told.
    rejected : tuple of RejectedFile
        Damaged segments, which do not count.
    notes : tuple of str
        Copies that differ by rounding, and which of them counts.
    complete : bool
        The number of rows was told, and all are there.
    """

    rows: IntArray
    bounds: IntArray
    fingerprint: str
    done: Mapping[int, Path]
    missing: tuple[int, ...]
    row_state: npt.NDArray[np.uint8]
    gaps: tuple[tuple[int, int], ...]
    rejected: tuple[RejectedFile, ...]
    notes: tuple[str, ...]
    complete: bool


class RowNames:
    """Stands in for an index where there is none: every covered row is an item named by itself."""

    def __init__(self, coverage: LooseCoverage) -> None:
        self._rows = coverage.rows
        self.item_row: IntArray = np.arange(len(coverage.rows))

    @property
    def n_items(self) -> int:
        """Number of items."""
        return len(self._rows)

    def item_names(self, items: IntArray) -> list[str]:
        """Name items by their rows."""
        return list(map(str, self._rows[items].tolist()))


class _Span(NamedTuple):
    """What is kept of a segment: its rows ``first`` to ``last - 1``, and their states."""

    first: int
    last: int
    path: Path
    unit: int
    fingerprint: str
    state: npt.NDArray[np.uint8]


def find_segments(paths: Sequence[Path]) -> list[Path]:
    """List the segment files that are named, or lie in the folders that are named.

    A folder may be a shard, a folder of shards, or a run; unfinished files in it are passed over.

    Raises
    ------
    InputError
        When a path is not there, or is a folder without segments.
    """
    found: list[Path] = []
    for path in paths:
        if path.is_dir():
            inside = [
                one
                for pattern in ("unit-*.h5", "rank-*/unit-*.h5", "shards/rank-*/unit-*.h5")
                for one in path.glob(pattern)
            ]
            if not inside:
                raise InputError(f"{path}: holds no segments (unit-*.h5); name a shard's folder")
            found += sorted(inside)
        elif path.exists():
            found.append(path)
        else:
            raise InputError(f"{path}: is not there; name segment files or shard folders")
    return list(dict.fromkeys(found))


def survey_loose(
    paths: Sequence[Path],
    n_rows: int | None = None,
    taken: Callable[[Path, Segment], None] | None = None,
) -> LooseCoverage:
    """Read and verify segments, and find out which rows they cover.

    A segment found more than once counts once, the first by path, where copies differ by no more
    than rounding (`copies.ROUNDING`). Memory holds a few segments at a time, and 10 bytes a row.

    Parameters
    ----------
    paths : sequence of Path
        Files, as `find_segments` lists them.
    n_rows : int, optional
        Rows of the whole run, where that is known.
    taken : callable, optional
        Gets every whole segment at the moment when it is read, in the order of `paths`: also copies
        that will not count, and whatever is refused in the end.

    Raises
    ------
    SegmentError
        When a file is no segment, or one of another version. A torn or flipped one is `rejected`.
    StoreError
        When files belong to different runs, or copies of a unit differ, or rows are none of the
        run's; or when no file is a whole segment.
    """
    spans: list[_Span] = []
    rejected: list[RejectedFile] = []
    for path, segment in read_ahead(paths):
        if isinstance(segment, DamagedSegmentError):
            rejected.append(RejectedFile(path, str(segment), damaged=True))
        else:
            spans.append(_span(path, segment, n_rows))
            if taken is not None:
                taken(path, segment)
    if not spans:
        raise StoreError(f"none of {len(paths):,} files is a whole segment; name others")
    _refuse_strangers(spans)
    spans.sort(key=lambda span: (span.first, span.last, span.path))
    spans, notes = _distinct(spans)
    return _coverage(spans, n_rows, tuple(rejected), notes)


def _span(path: Path, segment: Segment, n_rows: int | None) -> _Span:
    first, last = int(segment.rows[0]), int(segment.rows[-1]) + 1
    if first < 0 or last - first != len(segment.rows):
        raise StoreError(f"{path}: its rows are not consecutive; leave it out")
    if n_rows is not None and last > n_rows:
        raise StoreError(
            f"{path}: holds row {last - 1:,}, the index has {n_rows:,}: it belongs to another run; "
            "leave it out, or name its own index"
        )
    return _Span(first, last, path, segment.unit, segment.fingerprint, segment.state.copy())


def _refuse_strangers(spans: Sequence[_Span]) -> None:
    [(own, _)] = Counter(span.fingerprint for span in spans).most_common(1)
    known = next(span for span in spans if span.fingerprint == own)
    strangers = [span for span in spans if span.fingerprint != own]
    if strangers:
        listed = ", ".join(str(span.path) for span in strangers[:10])
        raise StoreError(
            f"{len(strangers):,} segments belong to another run than {known.path} "
            f"(fingerprint {own}): {listed}{' ...' if len(strangers) > 10 else ''}; "
            "name the segments of one run"
        )


def _distinct(spans: Sequence[_Span]) -> tuple[list[_Span], tuple[str, ...]]:
    """Count copies once, the first by path; `spans` are sorted by rows, then by path.

    Returns
    -------
    list of spans, tuple of str
        One span for each block of rows, and what to know of copies that were not the same bytes.
    """
    kept, notes = [spans[0]], []
    for span in spans[1:]:
        counted = kept[-1]
        if span.first >= counted.last:
            kept.append(span)
        elif not filecmp.cmp(span.path, counted.path, shallow=False):
            if differs := _difference(counted.path, span.path):
                raise StoreError(
                    f"{span.path} and {counted.path} both hold row {span.first:,} and differ: one "
                    f"has {differs}; leave one of them out"
                )
            notes.append(f"{span.path} differs from {counted.path} by rounding; the latter counts")
    return kept, tuple(notes)


def _difference(*paths: Path) -> str:
    one, other = (read_segment(path, any_name=True) for path in paths)
    return difference(one, other)


def _coverage(
    spans: Sequence[_Span],
    n_rows: int | None,
    rejected: tuple[RejectedFile, ...],
    notes: tuple[str, ...],
) -> LooseCoverage:
    edges = [(0, 0), *((span.first, span.last) for span in spans)]
    if n_rows is not None:
        edges.append((n_rows, n_rows))
    gaps = tuple((end, start) for (_, end), (start, _) in pairwise(edges) if end < start)
    told = [] if n_rows is None else gaps
    blocks = sorted([*_pieces(told), *((span.first, span.last, span) for span in spans)], key=_key)
    sizes = [last - first for first, last, _ in blocks]
    return LooseCoverage(
        rows=np.concatenate([np.arange(first, last) for first, last, _ in blocks]),
        bounds=np.concatenate([[0], np.cumsum(sizes)]),
        fingerprint=spans[0].fingerprint,
        done={number: span.path for number, (*_, span) in enumerate(blocks) if span},
        missing=tuple(number for number, (*_, span) in enumerate(blocks) if not span),
        row_state=np.concatenate([_state(*block) for block in blocks]),
        gaps=gaps,
        rejected=rejected,
        notes=notes,
        complete=n_rows is not None and not gaps,
    )


def _pieces(gaps: Sequence[tuple[int, int]]) -> Iterator[tuple[int, int, None]]:
    for first, last in gaps:
        for start in range(first, last, _GAP_ROWS):
            yield start, min(start + _GAP_ROWS, last), None


def _key(block: tuple[int, int, _Span | None]) -> int:
    return block[0]


def _state(first: int, last: int, span: _Span | None) -> npt.NDArray[np.uint8]:
    return np.full(last - first, RowState.MISSING, np.uint8) if span is None else span.state

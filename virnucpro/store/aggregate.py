"""From segments in the order of their making to one embeddings.h5 in the order of the input."""

from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import IO, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

from virnucpro.durable import write_file
from virnucpro.errors import DamagedSegmentError, StoreError
from virnucpro.store.embeddings_file import EmbeddingsFile, Layout
from virnucpro.store.schema import FINGERPRINT, RowState
from virnucpro.store.segment import Segment, read_segment
from virnucpro.store.sources import Sources, read_ahead

__all__ = [
    "ItemIndex",
    "copy_vectors",
    "describe",
    "gathered",
    "lay_out",
    "layout_of",
    "placed",
    "scattered",
    "vectors_of",
    "write_embeddings",
]

_GATHERED_BYTES = 128 << 20
"""Vectors held in memory, twice: one part is written while the next is read. More of them make
longer runs of neighbours in the output."""
_WRITTEN_BYTES = 16 << 20
_ITEMS_AT_ONCE = 1 << 16

FloatArray: TypeAlias = npt.NDArray[np.floating]
IntArray: TypeAlias = npt.NDArray[np.int64]


class ItemIndex(Protocol):
    """What the output needs to know of the items."""

    @property
    def n_items(self) -> int:
        """Number of items."""

    @property
    def item_row(self) -> IntArray:
        """int64 (n_items,), the row that holds each item's numbers."""

    def item_names(self, items: IntArray) -> list[str]:
        """Name items as the published tool does."""


def write_embeddings(
    path: Path, coverage: Sources, index: ItemIndex, views: Mapping[str, int]
) -> None:
    """Write the vectors of all items in input order.

    The file holds `embeddings` (n_items, D) in the segments' type, NaN where a row is not done;
    `sequence_ids` (n_items,) UTF-8, a NUL in a name written as U+2400; `status` (n_items,) uint8,
    explained by its attribute `codes`; and the attributes `fingerprint`, `complete` (no row is
    missing), `n_missing` and `n_quarantined` (items). It appears whole or not at all. Memory stays
    within a few hundred MB however many items there are.

    Parameters
    ----------
    path : Path
        The file to write; an older one stays until the new one is whole.
    coverage : Sources
        A `Coverage` or a `LooseCoverage`: tells the segments to read; all are verified again.
    index : ItemIndex
        Names the items and tells the row of each; a `SequenceIndex` is one.
    views : mapping of str to int
        View -> dimensions, in the order in which the vectors are joined.

    Raises
    ------
    StoreError
        When a segment has no vectors or vectors of another shape, or was damaged since the survey.
    OSError
        When the file cannot be written.
    """
    layout = layout_of(coverage, index, views)
    with write_file(path) as stream:
        file = lay_out(stream, layout, coverage.row_state, index)
        for origin, vectors in gathered(coverage, layout):
            for items, rows in scattered(index.item_row, origin, len(vectors), layout):
                file.write(items, vectors[rows])


def layout_of(coverage: Sources, index: ItemIndex, views: Mapping[str, int]) -> Layout:
    """Say what the file of a coverage holds; see `write_embeddings` for errors."""
    attributes = describe(
        coverage.row_state, coverage.fingerprint, index, complete=coverage.complete
    )
    return Layout(index.n_items, views, _stored_type(coverage), attributes)


def lay_out(
    stream: IO[bytes],
    layout: Layout,
    row_state: npt.NDArray[np.uint8],
    index: ItemIndex,
    *,
    reserve: bool = True,
) -> EmbeddingsFile:
    """Write all of the file but its vectors, always the same bytes.

    Raises
    ------
    OSError
        As `EmbeddingsFile`.
    """
    blocks = list(_blocks(index.n_items))
    names = (list(map(_storable, index.item_names(np.arange(*block)))) for block in blocks)
    status = (row_state[index.item_row[slice(*block)]] for block in blocks)
    return EmbeddingsFile(stream, layout, names, status, reserve=reserve)


def gathered(coverage: Sources, layout: Layout) -> Iterator[tuple[int, FloatArray]]:
    """Read the vectors of all rows, some hundred MB at a time; NaN where a row is not done.

    Yields
    ------
    int, numpy.ndarray
        The first row, and the vectors (n, D) of it and its successors, until the next step.
    """
    bounds = coverage.bounds
    groups = list(_groups(bounds, _GATHERED_BYTES // layout.item_bytes))
    most = max((bounds[units.stop] - bounds[units.start] for units in groups), default=0)
    buffers = [np.empty((int(most), layout.dim), layout.dtype) for _ in groups[:2]]

    def gather(number: int) -> FloatArray:
        units = groups[number]
        vectors = buffers[number % 2][: bounds[units.stop] - bounds[units.start]]
        _gather(coverage, units, vectors)
        return vectors

    # The caller is through with a buffer when it asks for the other one.
    with ThreadPoolExecutor(1, "gatherer") as thread:
        following = [thread.submit(gather, number) for number in range(min(1, len(groups)))]
        for number, units in enumerate(groups):
            vectors = following.pop().result()
            if number + 1 < len(groups):
                following.append(thread.submit(gather, number + 1))
            yield int(bounds[units.start]), vectors


def scattered(
    item_row: IntArray, origin: int, n_rows: int, layout: Layout
) -> Iterator[tuple[IntArray, IntArray]]:
    """Find where the rows ``origin`` to ``origin + n_rows - 1`` stand in the output.

    Yields
    ------
    numpy.ndarray, numpy.ndarray
        int64 (n,), items in ascending order, and (n,) the row of each, counted from `origin`.
    """

    def place(rows: IntArray) -> IntArray:
        inside = (rows >= origin) & (rows < origin + n_rows)
        return np.where(inside, rows - origin, -1)

    return placed(item_row, place, layout)


def placed(
    item_row: IntArray, place: Callable[[IntArray], IntArray], layout: Layout
) -> Iterator[tuple[IntArray, IntArray]]:
    """Find the items whose rows are at hand, some at a time.

    Parameters
    ----------
    item_row : numpy.ndarray
        int64 (n_items,), the row of each item.
    place : callable
        Rows (n,) -> int64 (n,), where each one's vector is; -1 where it is not at hand.
    layout : Layout
        Tells how large a vector is.

    Yields
    ------
    numpy.ndarray, numpy.ndarray
        int64 (n,), items in ascending order, and (n,) the place of each one's vector.
    """
    at_once = max(1, _WRITTEN_BYTES // layout.item_bytes)
    for first, last in _blocks(len(item_row)):
        places = place(item_row[first:last])
        here = np.flatnonzero(places >= 0)
        for start in range(0, len(here), at_once):
            part = here[start : start + at_once]
            yield first + part, places[part]


def _storable(name: str) -> str:
    """Replace what the strings of HDF5 cannot hold: a NUL, by the picture of one."""
    return name.replace("\0", "\N{SYMBOL FOR NULL}")


def _stored_type(coverage: Sources) -> np.dtype[np.floating]:
    """Tell the type of the segments' vectors; float32 where there are no segments."""
    for path in coverage.done.values():
        return vectors_of(path, read_segment(path, any_name=True)).dtype
    return np.dtype(np.float32)


def vectors_of(path: Path, segment: Segment) -> FloatArray:
    """Give the vectors of a segment.

    Raises
    ------
    StoreError
        When it has none.
    """
    if segment.embeddings is None:
        raise StoreError(
            f"{path}: this run keeps no embeddings; start a new run that does (--embeddings fp16)"
        )
    return segment.embeddings


def describe(
    row_state: npt.NDArray[np.uint8], fingerprint: str, index: ItemIndex, *, complete: bool
) -> dict[str, object]:
    """Make the file's attributes; the same number of bytes whatever the rows' states are."""
    counts = np.zeros(len(RowState), np.int64)
    for first, last in _blocks(index.n_items):
        states = row_state[index.item_row[first:last]]
        counts += np.bincount(states, minlength=len(RowState))
    return {
        FINGERPRINT: fingerprint,
        "complete": complete,
        "n_missing": counts[RowState.MISSING],
        "n_quarantined": counts[RowState.QUARANTINED],
    }


def _blocks(n_items: int) -> Iterator[tuple[int, int]]:
    for first in range(0, n_items, _ITEMS_AT_ONCE):
        yield first, min(first + _ITEMS_AT_ONCE, n_items)


def _groups(bounds: IntArray, max_rows: int) -> Iterator[range]:
    """Part the units into runs of at most `max_rows` rows, or of one unit."""
    first, n_units = 0, len(bounds) - 1
    while first < n_units:
        last = int(np.searchsorted(bounds, bounds[first] + max_rows, side="right")) - 1
        last = max(last, first + 1)
        yield range(first, last)
        first = last


def _gather(coverage: Sources, units: range, vectors: FloatArray) -> None:
    """Fill `vectors` with those of all rows of consecutive units; NaN where a row is not done."""
    bounds = coverage.bounds
    places = {unit: bounds[unit : unit + 2] - bounds[units.start] for unit in units}
    for unit in units:
        if unit not in coverage.done:
            vectors[slice(*places[unit])] = np.nan
    done = [unit for unit in units if unit in coverage.done]
    segments = read_ahead(coverage.done[unit] for unit in done)
    for unit, (path, segment) in zip(done, segments, strict=True):
        if isinstance(segment, DamagedSegmentError):
            raise segment
        copy_vectors(vectors[slice(*places[unit])], path, segment)


def copy_vectors(place: FloatArray, path: Path, segment: Segment) -> None:
    """Put a segment's vectors into `place`; NaN where a row is not done.

    Raises
    ------
    StoreError
        When it has none, or they are of another shape or type.
    """
    values = vectors_of(path, segment)
    if values.shape != place.shape or values.dtype != place.dtype:
        raise StoreError(
            f"{path}: has vectors {values.shape} of {values.dtype}, not {place.shape} of "
            f"{place.dtype}; delete it, then --resume redoes its unit"
        )
    place[:] = values
    place[segment.state != RowState.DONE] = np.nan

"""Yield the vectors of all items or residues of a run, in the order in which segments are read."""

from collections.abc import Iterable, Iterator
from functools import partial
from itertools import pairwise
from pathlib import Path

import numpy as np

from virnucpro.arrays import ByteArray, IntArray, RealArray, joined_ranges, slices
from virnucpro.errors import StoreError
from virnucpro.store.coverage import Coverage
from virnucpro.store.embeddings_file import ItemVectors, Layout
from virnucpro.store.row_items import RowItems
from virnucpro.store.schema import RowState
from virnucpro.store.segment import Segment, read_ahead, read_segment

_BLOCK_BYTES = 4 << 20


def all_vectors(
    coverage: Coverage, item_row: IntArray, row_items: RowItems, layout: Layout
) -> Iterator[ItemVectors]:
    """Yield all items with their vectors: items in segments, then missing items with NaN.

    Raises
    ------
    StoreError
        If a segment was damaged after `coverage` was computed, or has no vectors of `layout`.
    """
    if layout.offsets is not None:
        yield from residue_vectors(undamaged(coverage), row_items, layout)
        return
    yield from segment_vectors(undamaged(coverage), row_items, layout)
    yield from missing_vectors(coverage.row_state, item_row, layout)


def undamaged(coverage: Coverage) -> Iterator[tuple[Path, Segment]]:
    """Yield path and content of each segment in use; raise the error of a damaged segment.

    The order is that of `Survey.read`.
    """
    read = partial(read_segment, any_name=True)
    return read_ahead(read, reversed(list(coverage.done.values())))


def segment_vectors(
    segments: Iterator[tuple[Path, Segment]], row_items: RowItems, layout: Layout
) -> Iterator[ItemVectors]:
    """Yield items and their vectors, segment by segment; quarantined rows have NaN vectors.

    Vectors of segments without quarantined rows are not copied.

    Raises
    ------
    StoreError
        If a segment has no vectors, or vectors of another shape or type than in `layout`.
    """
    for path, segment in segments:
        vectors = embeddings_of(path, segment)
        wanted = (len(segment.rows), layout.dim)
        if vectors.shape != wanted or vectors.dtype != layout.dtype:
            raise StoreError(
                f"{path}: the vectors have shape {vectors.shape} and type {vectors.dtype} instead "
                f"of {wanted} and {layout.dtype}. Delete the file and rerun the command of its run "
                "with --resume."
            )
        if (segment.state != RowState.DONE).any():
            vectors = vectors.copy()
            vectors[segment.state != RowState.DONE] = np.nan
        for items, positions in row_items.of(segment.rows):
            yield ItemVectors(items, positions, vectors)


def missing_vectors(
    row_state: ByteArray, item_row: IntArray, layout: Layout
) -> Iterator[ItemVectors]:
    """Yield the items of all missing rows, with vectors of NaN."""
    if RowState.MISSING not in row_state:
        return
    at_once = max(1, _BLOCK_BYTES // layout.item_bytes)
    vectors = np.full((at_once, layout.dim), np.nan, layout.dtype)
    for block in slices(len(item_row)):
        items = block.start + np.flatnonzero(row_state[item_row[block]] == RowState.MISSING)
        for start in range(0, len(items), at_once):
            some = items[start : start + at_once]
            yield ItemVectors(some, np.arange(len(some)), vectors)


def embeddings_of(path: Path, segment: Segment) -> RealArray:
    """Return the vectors of a segment; raise StoreError if it has none."""
    if segment.counts is not None:
        raise StoreError(
            f"{path}: the segment has one vector per residue. Write embeddings.h5 in the "
            "folder of its run: virnucpro aggregate RUN."
        )
    if segment.embeddings is None:
        raise StoreError(
            f"{path}: the segment has no embeddings, because its run used --embeddings none. "
            "Start a new run with --embeddings fp16."
        )
    return segment.embeddings


_VECTORS_AT_ONCE = 1 << 18


def item_offsets(
    segments: Iterable[tuple[Path, Segment]], n_rows: int, item_row: IntArray
) -> IntArray:
    """Return the offsets of `Layout`: int64 (n_items + 1,); reads all segments.

    This needs 8 bytes of memory per row and per item. Rows without a vector have no residues.
    """
    counts = np.zeros(n_rows, np.int64)
    for path, segment in segments:
        counts[segment.rows] = _residues_of(path, segment)[1]
    offsets = np.zeros(len(item_row) + 1, np.int64)
    for block in slices(len(item_row)):
        offsets[block.start + 1 : block.stop + 1] = counts[item_row[block]]
    return np.cumsum(offsets, out=offsets)


def residue_vectors(
    segments: Iterable[tuple[Path, Segment]], row_items: RowItems, layout: Layout
) -> Iterator[ItemVectors]:
    """Yield all vectors with their positions among all vectors, segment by segment.

    Raises
    ------
    StoreError
        If a segment has no residues, or other numbers of residues than `layout`.
    """
    assert layout.offsets is not None
    for path, segment in segments:
        residues, counts = _residues_of(path, segment)
        if (residues.shape[1], residues.dtype) != (layout.dim, layout.dtype):
            raise StoreError(f"{path}: vectors of another shape or type. Delete the file; resume.")
        first = np.cumsum(counts) - counts
        for items, positions in row_items.of(segment.rows):
            sizes = counts[positions]
            cuts = np.searchsorted(
                np.cumsum(sizes), np.arange(0, sizes.sum() + _VECTORS_AT_ONCE, _VECTORS_AT_ONCE)
            )
            cuts[0], cuts[-1] = 0, len(items)
            for low, high in pairwise(np.unique(cuts).tolist()):
                own, places = items[low:high], positions[low:high]
                yield ItemVectors(
                    joined_ranges(layout.offsets[own], sizes[low:high]),
                    joined_ranges(first[places], sizes[low:high]),
                    residues,
                )


def _residues_of(path: Path, segment: Segment) -> tuple[RealArray, IntArray]:
    if segment.embeddings is None or segment.counts is None:
        raise StoreError(f"{path}: has no vectors of residues. Move the file out of the run.")
    return segment.embeddings, segment.counts

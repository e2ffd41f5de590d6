"""Yield the vectors of all items of a run, in the order in which segments are read."""

from collections.abc import Iterator
from pathlib import Path
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from virnucpro.errors import DamagedSegmentError, StoreError
from virnucpro.store.coverage import Coverage
from virnucpro.store.embeddings_file import ItemVectors, Layout
from virnucpro.store.loose import LooseCoverage
from virnucpro.store.residues import residue_vectors
from virnucpro.store.row_items import RowItems
from virnucpro.store.schema import RowState
from virnucpro.store.segment import Segment, read_segments

__all__ = ["all_vectors", "embeddings_of", "missing_vectors", "segment_vectors", "undamaged"]

_BLOCK_BYTES = 4 << 20
_ITEMS_AT_ONCE = 1 << 16

FloatArray: TypeAlias = npt.NDArray[np.floating]
IntArray: TypeAlias = npt.NDArray[np.int64]


def all_vectors(
    coverage: Coverage | LooseCoverage, item_row: IntArray, row_items: RowItems, layout: Layout
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


def undamaged(coverage: Coverage | LooseCoverage) -> Iterator[tuple[Path, Segment]]:
    """Yield path and content of each segment in use; raise the error of a damaged segment.

    The order is that of `Survey.read`.
    """
    for path, segment in read_segments(reversed(list(coverage.done.values()))):
        if isinstance(segment, DamagedSegmentError):
            raise segment
        yield path, segment


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
    row_state: npt.NDArray[np.uint8], item_row: IntArray, layout: Layout
) -> Iterator[ItemVectors]:
    """Yield the items of all missing rows, with vectors of NaN."""
    if RowState.MISSING not in row_state:
        return
    at_once = max(1, _BLOCK_BYTES // layout.item_bytes)
    vectors = np.full((at_once, layout.dim), np.nan, layout.dtype)
    for first in range(0, len(item_row), _ITEMS_AT_ONCE):
        state = row_state[item_row[first : first + _ITEMS_AT_ONCE]]
        items = first + np.flatnonzero(state == RowState.MISSING)
        for start in range(0, len(items), at_once):
            some = items[start : start + at_once]
            yield ItemVectors(some, np.arange(len(some)), vectors)


def embeddings_of(path: Path, segment: Segment) -> FloatArray:
    """Return the vectors of a segment; raise StoreError if it has none."""
    if segment.residues is not None:
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

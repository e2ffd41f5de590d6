"""Vectors of single residues (tokens) in input order, from the segments of a run."""

from collections.abc import Iterable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from virnucpro.errors import StoreError
from virnucpro.store.embeddings_file import ItemVectors, Layout
from virnucpro.store.row_items import RowItems
from virnucpro.store.segment import Segment

__all__ = ["item_offsets", "residue_vectors"]

_ITEMS_AT_ONCE = 1 << 20
_VECTORS_AT_ONCE = 1 << 18

IntArray: TypeAlias = npt.NDArray[np.int64]


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
    for first in range(0, len(item_row), _ITEMS_AT_ONCE):
        rows = item_row[first : first + _ITEMS_AT_ONCE]
        offsets[first + 1 : first + 1 + len(rows)] = counts[rows]
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
                    _ranges(layout.offsets[own], sizes[low:high]),
                    _ranges(first[places], sizes[low:high]),
                    residues,
                )


def _ranges(starts: IntArray, counts: IntArray) -> IntArray:
    """Return ``starts[i]`` to ``starts[i] + counts[i] - 1`` for each i, joined."""
    ends = np.cumsum(counts)
    shift = np.repeat(starts - (ends - counts), counts)
    joined: IntArray = shift + np.arange(len(shift))
    return joined


def _residues_of(path: Path, segment: Segment) -> tuple[npt.NDArray[np.floating], IntArray]:
    if segment.residues is None or segment.counts is None:
        raise StoreError(f"{path}: has no vectors of residues. Move the file out of the run.")
    return segment.residues, segment.counts

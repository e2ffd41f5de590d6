"""Write and check embeddings.h5, which contains the vectors of all segments in input order."""

import os
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import IO, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

from virnucpro.durable import write_file
from virnucpro.errors import DamagedSegmentError, StoreError
from virnucpro.store.coverage import Coverage
from virnucpro.store.embeddings_file import EmbeddingsFile, Layout, neighbours, write_all
from virnucpro.store.loose import LooseCoverage, LooseSurvey
from virnucpro.store.schema import RowState
from virnucpro.store.segment import Segment, read_segment, read_segments

__all__ = ["ItemIndex", "embeddings_problem", "write_embeddings", "write_loose_embeddings"]

_GATHERED_BYTES = 128 << 20
"""Bytes of vectors per part. Two parts are in memory: one is written while the next is read.

Larger parts need fewer writes, because consecutive items are written together.
"""
_WRITTEN_BYTES = 16 << 20
_COPIED_BYTES = 1 << 20
_ITEMS_AT_ONCE = 1 << 16

FloatArray: TypeAlias = npt.NDArray[np.floating]
IntArray: TypeAlias = npt.NDArray[np.int64]
States: TypeAlias = npt.NDArray[np.uint8]


class ItemIndex(Protocol):
    """Interface of `SequenceIndex` and `RowNames`: name and row of each item of a run."""

    @property
    def n_items(self) -> int:
        """Number of items of the run."""

    @property
    def item_row(self) -> IntArray:
        """Row of each item, int64 (n_items,)."""

    def item_names(self, items: IntArray) -> list[str]:
        """Return the names of the given items, in the notation of the published tool."""


def write_embeddings(
    path: Path,
    coverage: Coverage | LooseCoverage,
    index: ItemIndex,
    views: Mapping[str, int] | None = None,
) -> None:
    """Write the vectors of all items in input order, atomically, with a few hundred MB of memory.

    The file has `embeddings` (n_items, D) in the dtype of the segments, with NaN for missing and
    quarantined rows; `sequence_ids` (n_items,) UTF-8, with U+2400 for a NUL in a name; `status`
    (n_items,) uint8, explained by its attribute `codes`; and the attributes `fingerprint`,
    `complete` (no row is missing), `n_missing` and `n_quarantined` (numbers of items).

    Parameters
    ----------
    path : Path
        The file to write.
    coverage : Coverage or LooseCoverage
        Lists the segment files. Each segment is read and verified again.
    index : ItemIndex
        Name and row of each item.
    views : mapping of str to int, optional
        Number of dimensions of each view, in the order in which the vectors are joined; default:
        one view of all dimensions.

    Raises
    ------
    StoreError
        If a segment has no vectors or vectors of another shape, or was damaged after `coverage` was
        computed.
    OSError
        If the file cannot be written.
    """
    layout = _layout_of(coverage, index, views)
    with write_file(path) as stream:
        file = _lay_out(stream, layout, coverage.row_state, index)
        for items, vectors in _all_vectors(coverage, index, layout):
            file.write(items, vectors)


def write_loose_embeddings(
    path: Path,
    segments: Sequence[Path],
    index: ItemIndex,
    n_rows: int,
    *,
    views: Mapping[str, int] | None = None,
    accept: Callable[[LooseCoverage], None] = lambda _: None,
) -> LooseCoverage:
    """Write embeddings.h5 from segment files in any folders; return the coverage of the segments.

    Each segment is read and verified once. The file has the same bytes as a file that
    `write_embeddings` writes with the coverage from `survey_loose`. The states of the rows are
    written last. This needs a few hundred MB of memory, and 14 bytes per row.

    Parameters
    ----------
    path : Path
        The file to write, atomically.
    segments : sequence of Path
        Files from `find_segments`.
    index : ItemIndex
        Name and row of each item.
    n_rows : int
        Number of rows of the run.
    views : mapping of str to int, optional
        As in `write_embeddings`.
    accept : callable
        Called with the coverage of all segments. If it raises an error, no file is written.

    Raises
    ------
    SegmentError, StoreError
        As for `survey_loose`; also if a segment has no vectors or vectors of another shape.
    OSError
        If the file cannot be written.
    """
    survey = LooseSurvey(n_rows)
    with write_file(path) as stream:
        counting = _counting(survey.read(segments))
        first = next(counting, None)
        if first is None:
            return survey.coverage()  # raises StoreError: there is no valid segment
        state = np.full(n_rows, RowState.MISSING, np.uint8)
        unknown = LooseCoverage(first[1].fingerprint, {}, state, ((0, n_rows),), (), (), n_rows)
        layout = _layout(unknown, index, views, _embeddings_of(*first))
        file = _lay_out(stream, layout, state, index)
        for items, vectors in _vectors(chain([first], counting), index, n_rows, layout):
            file.write(items, vectors)
        coverage = survey.coverage()
        accept(coverage)
        for items, vectors in _gaps(coverage.row_state, index, layout):
            file.write(items, vectors)
        _rewrite_layout(stream, file.offset, layout, coverage, index, path.parent)
    return coverage


def embeddings_problem(
    path: Path, coverage: Coverage | LooseCoverage, index: ItemIndex, views: Mapping[str, int]
) -> str | None:
    """Compare a file with the expected embeddings.h5; return the first difference, or None.

    The file is not opened with HDF5, because a damaged byte can crash HDF5. Shape, attributes,
    names and states are compared with a temporary file, vectors with the segments. This needs a few
    hundred MB of memory.

    Raises
    ------
    StoreError
        As for `write_embeddings`.
    OSError
        If the file cannot be read, or the temporary file cannot be written.
    """
    layout = _layout_of(coverage, index, views)
    with path.open("rb", buffering=0) as found, tempfile.TemporaryFile() as wanted:
        offset = _lay_out(wanted, layout, coverage.row_state, index, reserve=False).offset
        sizes = [os.fstat(stream.fileno()).st_size for stream in (found, wanted)]
        if sizes[0] != sizes[1]:
            return f"has {sizes[0]:,} bytes, not {sizes[1]:,}"
        for start, size in _around_vectors(layout, offset, sizes[1]):
            if os.pread(found.fileno(), size, start) != os.pread(wanted.fileno(), size, start):
                return "its shape, attributes, sequence_ids or status differ from those of the run"
        for item in _other_vectors(found, offset, _all_vectors(coverage, index, layout)):
            return f"the vector of item {item:,} differs from that in its segment"
    return None


def _other_vectors(
    found: IO[bytes], offset: int, vectors: Iterable[tuple[IntArray, FloatArray]]
) -> Iterator[int]:
    """Yield numbers of items whose vectors in the file `found` and in `vectors` differ.

    Items are compared in groups of consecutive numbers. Of each group, only the first different
    item is yielded.
    """
    for items, values in vectors:
        wanted = np.ascontiguousarray(values).view(np.uint8)
        size = wanted.shape[1]
        for item, first, last in neighbours(items):
            stored = os.pread(found.fileno(), (last - first) * size, offset + item * size)
            same = np.frombuffer(stored, np.uint8).reshape(-1, size) == wanted[first:last]
            if not same.all():
                yield item + int(same.all(axis=1).argmin())


def _layout_of(
    coverage: Coverage | LooseCoverage, index: ItemIndex, views: Mapping[str, int] | None
) -> Layout:
    """Return the layout of embeddings.h5, with dtype and dimensions from the first segment file."""
    vectors: FloatArray = np.empty((0, 0), np.float32)
    for path in coverage.done.values():
        vectors = _embeddings_of(path, read_segment(path, any_name=True))
        break
    return _layout(coverage, index, views, vectors)


def _layout(
    coverage: Coverage | LooseCoverage,
    index: ItemIndex,
    views: Mapping[str, int] | None,
    vectors: FloatArray,
) -> Layout:
    """Return the layout of embeddings.h5, with dtype and number of dimensions of `vectors`."""
    dims = views or {"joined": vectors.shape[1]}
    return Layout(index.n_items, dims, vectors.dtype, _attributes(coverage, index))


def _attributes(coverage: Coverage | LooseCoverage, index: ItemIndex) -> dict[str, object]:
    """Return the attributes of embeddings.h5, which always have the same size in bytes."""
    counts = np.zeros(len(RowState), np.int64)
    for block in _blocks(index.n_items):
        counts += np.bincount(coverage.row_state[index.item_row[block]], minlength=len(RowState))
    return {
        "fingerprint": coverage.fingerprint,
        "complete": coverage.complete,
        "n_missing": counts[RowState.MISSING],
        "n_quarantined": counts[RowState.QUARANTINED],
    }


def _lay_out(
    stream: IO[bytes], layout: Layout, row_state: States, index: ItemIndex, *, reserve: bool = True
) -> EmbeddingsFile:
    """Write embeddings.h5 without its vectors; return the object that writes the vectors."""
    blocks = list(_blocks(index.n_items))
    items = (np.arange(block.start, block.stop) for block in blocks)
    # A string of HDF5 cannot contain NUL: U+2400 replaces it.
    names = (
        [name.replace("\0", "\N{SYMBOL FOR NULL}") for name in index.item_names(some)]
        for some in items
    )
    status = (row_state[index.item_row[block]] for block in blocks)
    return EmbeddingsFile(stream, layout, names, status, reserve=reserve)


def _rewrite_layout(
    stream: IO[bytes],
    offset: int,
    layout: Layout,
    coverage: LooseCoverage,
    index: ItemIndex,
    folder: Path,
) -> None:
    """Rewrite all of embeddings.h5 except the vectors, with the states in the final coverage."""
    layout = replace(layout, attributes=_attributes(coverage, index))
    with tempfile.TemporaryFile(dir=folder) as final:
        final_offset = _lay_out(final, layout, coverage.row_state, index, reserve=False).offset
        size = os.fstat(final.fileno()).st_size
        # The positions in the file do not depend on the values of attributes and states.
        assert (final_offset, size) == (offset, os.fstat(stream.fileno()).st_size)
        for start, length in _around_vectors(layout, offset, size):
            data = os.pread(final.fileno(), length, start)
            write_all(stream.fileno(), memoryview(data), start)


def _around_vectors(layout: Layout, offset: int, size: int) -> Iterator[tuple[int, int]]:
    """Yield position and size of blocks that cover all bytes of embeddings.h5 except vectors."""
    for first, last in ((0, offset), (offset + layout.n_items * layout.item_bytes, size)):
        for start in range(first, last, _COPIED_BYTES):
            yield start, min(_COPIED_BYTES, last - start)


def _blocks(n_items: int) -> Iterator[slice]:
    for first in range(0, n_items, _ITEMS_AT_ONCE):
        yield slice(first, min(first + _ITEMS_AT_ONCE, n_items))


def _all_vectors(
    coverage: Coverage | LooseCoverage, index: ItemIndex, layout: Layout
) -> Iterator[tuple[IntArray, FloatArray]]:
    """Yield all items with their vectors: items in segments, then missing items with NaN."""
    yield from _vectors(_undamaged(coverage), index, len(coverage.row_state), layout)
    yield from _gaps(coverage.row_state, index, layout)


def _undamaged(coverage: Coverage | LooseCoverage) -> Iterator[tuple[Path, Segment]]:
    for path, segment in read_segments(coverage.done.values()):
        if isinstance(segment, DamagedSegmentError):
            raise segment
        yield path, segment


def _counting(segments: Iterable[tuple[Path, Segment]]) -> Iterator[tuple[Path, Segment]]:
    """Yield the given pairs, but no second copy of a unit and no segment of another run."""
    fingerprint, firsts = "", set[int]()
    for path, segment in segments:
        fingerprint, first = fingerprint or segment.fingerprint, int(segment.rows[0])
        if segment.fingerprint == fingerprint and first not in firsts:
            firsts.add(first)
            yield path, segment


def _vectors(
    segments: Iterator[tuple[Path, Segment]], index: ItemIndex, n_rows: int, layout: Layout
) -> Iterator[tuple[IntArray, FloatArray]]:
    """Yield item numbers and their vectors, segment by segment; quarantined rows have NaN vectors.

    Item numbers are int64 (n,), ascending; vectors are (n, D). A thread reads the next segments
    while the caller uses the current vectors.
    """
    parts = _joined_segments(segments, layout)
    with ThreadPoolExecutor(1, "gatherer") as thread:
        following = thread.submit(next, parts, None)
        while (part := following.result()) is not None:
            # The thread overwrites the buffer of the previous part, which is no longer in use.
            following = thread.submit(next, parts, None)
            rows, vectors = part
            places = np.full(n_rows, -1, np.int32)
            places[rows] = np.arange(len(rows))
            yield from _scattered(places, vectors, index, layout)


def _gaps(
    row_state: States, index: ItemIndex, layout: Layout
) -> Iterator[tuple[IntArray, FloatArray]]:
    """Yield the numbers of all items of missing rows, with vectors of NaN."""
    if (row_state == RowState.MISSING).any():
        nothing = np.full((1, layout.dim), np.nan, layout.dtype)
        places = np.where(row_state == RowState.MISSING, 0, -1)
        yield from _scattered(places, nothing, index, layout)


def _scattered(
    places: npt.NDArray[np.integer], vectors: FloatArray, index: ItemIndex, layout: Layout
) -> Iterator[tuple[IntArray, FloatArray]]:
    """Yield all items whose rows have a vector, with their vectors, in blocks of a few MB.

    Parameters
    ----------
    places
        int (n_rows,), position of each row's vector in `vectors`; -1 for rows without a vector.
    """
    at_once = max(1, _WRITTEN_BYTES // layout.item_bytes)
    for block in _blocks(index.n_items):
        found = places[index.item_row[block]]
        here = np.flatnonzero(found >= 0)
        for start in range(0, len(here), at_once):
            part = here[start : start + at_once]
            yield block.start + part, vectors[found[part]]


def _joined_segments(
    segments: Iterator[tuple[Path, Segment]], layout: Layout
) -> Iterator[tuple[IntArray, FloatArray]]:
    """Join the rows (n,) and vectors (n, D) of several segments; yield both.

    Two buffers are used alternately: yielded vectors are overwritten after the next yield.
    """
    most = max(1, _GATHERED_BYTES // layout.item_bytes)
    vectors, other = (np.empty((most, layout.dim), layout.dtype) for _ in range(2))
    rows: list[IntArray] = []
    used = 0
    for path, segment in segments:
        end = used + len(segment.rows)
        if rows and end > len(vectors):
            yield np.concatenate(rows), vectors[:used]
            vectors, other = other, vectors
            rows, used, end = [], 0, len(segment.rows)
        if end > len(vectors):
            vectors = np.empty((end, layout.dim), layout.dtype)
        _copy_vectors(vectors[used:end], path, segment)
        rows.append(segment.rows.copy())  # a view would keep the whole segment in memory
        used = end
    if rows:
        yield np.concatenate(rows), vectors[:used]


def _copy_vectors(place: FloatArray, path: Path, segment: Segment) -> None:
    """Copy the vectors of a segment into the array `place`; quarantined rows become NaN."""
    values = _embeddings_of(path, segment)
    if values.shape != place.shape or values.dtype != place.dtype:
        raise StoreError(
            f"{path}: the vectors have shape {values.shape} and type {values.dtype} instead of "
            f"{place.shape} and {place.dtype}. Delete the file and rerun the command of its run "
            "with --resume."
        )
    place[:] = values
    place[segment.state != RowState.DONE] = np.nan


def _embeddings_of(path: Path, segment: Segment) -> FloatArray:
    if segment.embeddings is None:
        raise StoreError(
            f"{path}: the segment has no embeddings, because its run used --embeddings none. "
            "Start a new run with --embeddings fp16."
        )
    return segment.embeddings

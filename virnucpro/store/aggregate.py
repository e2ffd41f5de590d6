"""Write and check embeddings.h5, which contains the vectors of all segments in input order."""

import os
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence, Sized
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain, pairwise
from pathlib import Path
from typing import IO, Final, Self, TypeAlias

import numpy as np

from virnucpro.arrays import BoolArray, ByteArray, IntArray, RealArray, joined_ranges, slices
from virnucpro.durable import write_file
from virnucpro.errors import StoreError
from virnucpro.sequences.index import SequenceIndex
from virnucpro.store.coverage import Coverage, Survey
from virnucpro.store.embeddings_file import (
    EmbeddingsFile,
    ItemVectors,
    Layout,
    noting_space,
)
from virnucpro.store.row_items import RowItems
from virnucpro.store.schema import RowState
from virnucpro.store.segment import Segment, read_ahead, read_segment
from virnucpro.store.vector_ranges import in_ranges

_COPIED_BYTES = 1 << 20


class RowNames:
    """Replacement for a `SequenceIndex`: each row with a segment is an item named by its number."""

    def __init__(self, coverage: Coverage) -> None:
        self.item_row: IntArray = np.flatnonzero(coverage.row_state != RowState.MISSING)
        self.n_items = len(self.item_row)

    @property
    def input_names(self) -> Sequence[str]:
        """Empty: the input files are unknown."""
        return ()

    def item_origins(self, items: IntArray) -> tuple[IntArray, IntArray]:
        """Return 0 as the file of each item, and the number of its row, from 1."""
        return np.zeros_like(items), self.item_row[items] + 1

    def without_vector(self, rows: IntArray) -> BoolArray:
        """Return False for each row: the kinds of the rows are unknown."""
        return np.zeros(len(rows), np.bool_)

    def item_names(self, items: IntArray) -> list[str]:
        """Return the name of each item: the number of the item's row, as text."""
        return list(map(str, self.item_row[items].tolist()))


ItemIndex: TypeAlias = SequenceIndex | RowNames


def write_embeddings(
    path: Path,
    source: Survey | Coverage,
    index: ItemIndex,
    views: Mapping[str, int] | None = None,
    about: Mapping[str, object] | None = None,
) -> Coverage:
    """Write the vectors of all items in input order, atomically; return the coverage of the run.

    This needs a few hundred MB of memory, 1 byte per row, and 8 bytes of temporary disk space per
    item beside `path`. Vectors below 4 kB may use as much temporary disk space as in the file, if
    it is free; see `in_ranges`.

    The file has `embeddings` (n_items, D) in the dtype of the segments, with NaN for rows that are
    missing, quarantined, or scored by another classifier (zero for these without an index);
    `sequence_ids` (n_items,) UTF-8, with U+2400 for a NUL in a name; `status` (n_items,) uint8,
    explained by its attribute `codes`; and the attributes `fingerprint`, `complete` (no row is
    missing), `n_missing` and `n_quarantined` (numbers of items). `record` int64 (n_items,) is the
    number of the item's record in its file, from 1; `file` uint32 (n_items,) is the position of
    this file in `files`. Without an index these three are absent.

    If the segments have one vector per residue, the file has `residues` (t, D) and `offsets` int64
    (n_items + 1,) instead of `embeddings`, see `Layout`. This needs 16 bytes per row or item more.

    Parameters
    ----------
    path : Path
        The file to write.
    source : Survey or Coverage
        A survey that has not been read yet, of a run with known bounds: each segment is read and
        verified once, and the states of the rows are written last. Or a coverage, whose segment
        files are read and verified again. The bytes of the file are the same.
    index : ItemIndex
        Name and row of each item.
    views : mapping of str to int, optional
        Number of dimensions of each view, in the order in which the vectors are joined; default:
        one view of all dimensions.
    about : mapping of str to object, optional
        Further attributes of the file.

    Raises
    ------
    SegmentError, StoreError
        As for `survey`; also if a segment has no vectors or vectors of another shape, or was
        damaged after the coverage was computed.
    OSError
        If the file cannot be written.
    """
    content = _Content(index, views, about or {})
    if isinstance(source, Coverage):
        return _write_covered(path, source, content)
    reading = source.read()
    first = next(reading, None)
    if first is None or first[1].counts is not None:
        for _ in reading:  # the numbers of residues must be known before the first is written
            pass
        return _write_covered(path, source.coverage(), content)
    with write_file(path) as stream:
        state = np.full(source.n_rows, RowState.MISSING, np.uint8)
        nothing = np.empty((0, 2), np.float32)
        coverage = Coverage(  # nothing is known yet
            np.array([0, len(state)]), first[1].fingerprint, {}, (0,), (), state, nothing, {}
        )
        layout = content.layout(coverage, _embeddings_of(*first))
        file = content.lay_out(stream, layout, state)
        with _row_items(stream, layout, index, path.parent) as row_items:

            def vectors() -> Iterator[ItemVectors]:
                nonlocal coverage
                yield from _segment_vectors(chain([first], reading), index, row_items, layout)
                coverage = source.coverage()
                yield from _missing_vectors(coverage.row_state, index.item_row, layout)

            _write(stream, file, vectors(), layout, path.parent)
        file.update(content.counts(coverage), content.status(coverage.row_state))
    return coverage


def _write_covered(path: Path, coverage: Coverage, content: "_Content") -> Coverage:
    layout, index = content.layout_of(coverage), content.index
    with write_file(path) as stream:
        file = content.lay_out(stream, layout, coverage.row_state)
        with _row_items(stream, layout, index, path.parent) as row_items:
            vectors = _all_vectors(coverage, index, row_items, layout)
            _write(stream, file, vectors, layout, path.parent)
    return coverage


def embeddings_problem(
    path: Path,
    coverage: Coverage,
    index: ItemIndex,
    views: Mapping[str, int],
    about: Mapping[str, object] | None = None,
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
    content = _Content(index, views, about or {})
    layout = content.layout_of(coverage)
    with path.open("rb", buffering=0) as stored, tempfile.TemporaryFile() as wanted:
        offset = content.lay_out(wanted, layout, coverage.row_state, reserve=False).offset
        sizes = [os.fstat(stream.fileno()).st_size for stream in (stored, wanted)]
        if sizes[0] != sizes[1]:
            return f"has {sizes[0]:,} bytes, not {sizes[1]:,}"
        for start, size in _around_vectors(layout, offset, sizes[1]):
            if os.pread(stored.fileno(), size, start) != os.pread(wanted.fileno(), size, start):
                return "its shape, attributes, sequence_ids or status differ from those of the run"
        with RowItems(index.item_row) as row_items:
            vectors = _all_vectors(coverage, index, row_items, layout)
            for item in _other_vectors(stored, offset, vectors):
                if layout.offsets is not None:
                    item = int(np.searchsorted(layout.offsets, item, side="right")) - 1  # noqa: PLW2901
                return f"the vector of item {item:,} differs from that in its segment"
    return None


def _other_vectors(kept: IO[bytes], offset: int, vectors: Iterable[ItemVectors]) -> Iterator[int]:
    """Yield numbers of items whose vectors in the file `kept` and in `vectors` differ.

    Items are compared in groups of consecutive numbers. Of each group, only the first different
    item is yielded.
    """
    for some in vectors:
        wanted = some.bytes
        size = wanted.shape[1]
        for item, first, last in some.groups():
            stored = os.pread(kept.fileno(), (last - first) * size, offset + item * size)
            same = np.frombuffer(stored, np.uint8).reshape(-1, size) == wanted[first:last]
            if not same.all():
                yield item + int(same.all(axis=1).argmin())


@dataclass(frozen=True, slots=True)
class _Content:
    """What embeddings.h5 has beside the vectors; attributes as parameters of `write_embeddings`."""

    index: ItemIndex
    views: Mapping[str, int] | None
    about: Mapping[str, object]

    def layout_of(self, coverage: Coverage) -> Layout:
        """Return the layout of the file, with dtype and dimensions from the first segment file."""
        vectors: RealArray = np.empty((0, 0), np.float32)
        for path in coverage.done.values():
            segment = read_segment(path, any_name=True)
            if segment.embeddings is not None and segment.counts is not None:
                n_rows, item_row = len(coverage.row_state), self.index.item_row
                offsets = _item_offsets(_undamaged(coverage), n_rows, item_row)
                return replace(self.layout(coverage, segment.embeddings), offsets=offsets)
            vectors = _embeddings_of(path, segment)
            break
        return self.layout(coverage, vectors)

    def layout(self, coverage: Coverage, vectors: RealArray) -> Layout:
        """Return the layout of the file, with dtype and number of dimensions of `vectors`."""
        dims = self.views or {"joined": vectors.shape[1]}
        attributes = {
            "fingerprint": coverage.fingerprint,
            **self.counts(coverage),
            **self.about,
        }
        return Layout(self.index.n_items, dims, vectors.dtype, attributes)

    def counts(self, coverage: Coverage) -> dict[str, object]:
        """Return the attributes of the file that depend on the states of the rows."""
        counts = np.zeros(len(RowState), np.int64)
        for status in self.status(coverage.row_state):
            counts += np.bincount(status, minlength=len(RowState))
        return {
            "complete": coverage.complete,
            "n_missing": counts[RowState.MISSING],
            "n_quarantined": counts[RowState.QUARANTINED],
        }

    def status(self, row_state: ByteArray) -> Iterator[ByteArray]:
        """Yield the states of all items, in blocks."""
        return (row_state[self.index.item_row[block]] for block in slices(self.index.n_items))

    def lay_out(
        self, stream: IO[bytes], layout: Layout, row_state: ByteArray, *, reserve: bool = True
    ) -> EmbeddingsFile:
        """Write the file without its vectors; return the object that writes the vectors."""
        index, n_items, files = self.index, self.index.n_items, self.index.input_names
        # A string of HDF5 cannot contain NUL: U+2400 replaces it.
        names = (
            [name.replace("\0", "\N{SYMBOL FOR NULL}") for name in index.item_names(some)]
            for some in _items(n_items)
        )
        columns: dict[str, tuple[int, Iterable[Sized]]] = {
            "sequence_ids": (n_items, names),
            "status": (n_items, self.status(row_state)),
        }
        if files:
            columns |= {
                "record": (n_items, (index.item_origins(some)[1] for some in _items(n_items))),
                "file": (n_items, (index.item_origins(some)[0] for some in _items(n_items))),
                "files": (len(files), [files]),
            }
        if layout.offsets is not None:
            columns["offsets"] = (n_items + 1, [layout.offsets])
        return EmbeddingsFile(stream, layout, columns, reserve=reserve)


def _write(
    stream: IO[bytes],
    file: EmbeddingsFile,
    vectors: Iterable[ItemVectors],
    layout: Layout,
    folder: Path,
) -> None:
    """Write vectors, and flush them to disk meanwhile.

    Small vectors are joined first if the file has its disk space, which the temporary file in
    `folder` then cannot take away.
    """
    if file.reserved:
        vectors = in_ranges(vectors, layout, folder)
    with EarlySync(stream.fileno()) as sync:
        for some in vectors:
            file.write(some)
            sync.wrote(len(some.items) * some.bytes.shape[1])


def _row_items(stream: IO[bytes], layout: Layout, index: ItemIndex, folder: Path) -> RowItems:
    """Return the items of each row, sorted into a temporary file in `folder`."""
    with noting_space(stream.fileno(), layout):
        return RowItems(index.item_row, folder)


def _around_vectors(layout: Layout, offset: int, size: int) -> Iterator[tuple[int, int]]:
    """Yield position and size of blocks that cover all bytes of embeddings.h5 except vectors."""
    for first, last in ((0, offset), (offset + layout.n_vectors * layout.item_bytes, size)):
        for start in range(first, last, _COPIED_BYTES):
            yield start, min(_COPIED_BYTES, last - start)


def _items(n_items: int) -> Iterator[IntArray]:
    """Yield all items in blocks."""
    return (np.arange(block.start, block.stop) for block in slices(n_items))


_BYTES: Final = 256 << 20
"""Bytes after which a flush begins, unless an earlier one goes on."""


class EarlySync:
    """Context manager that flushes a growing file in a thread, and raises the errors of flushes.

    Without it, all of a large file would be flushed at its end, when nothing else is left to do.

    Parameters
    ----------
    handle
        Number of the open file.
    """

    def __init__(self, handle: int) -> None:
        self._handle = handle
        self._pending = 0
        self._flush: Future[None] | None = None

    def wrote(self, n_bytes: int) -> None:
        """Note that `n_bytes` were written; begin to flush them if they are many.

        Raises
        ------
        OSError
            If an earlier flush failed: the kernel reports such an error only once.
        """
        self._pending += n_bytes
        if self._pending < _BYTES or (self._flush is not None and not self._flush.done()):
            return
        if self._flush is not None:
            self._flush.result()
        self._pending = 0
        self._flush = self._pool.submit(os.fdatasync, self._handle)

    def __enter__(self) -> Self:
        self._pool = ThreadPoolExecutor(1, "early-sync")
        return self

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        self._pool.shutdown()
        if error is None and self._flush is not None:
            self._flush.result()


_BLOCK_BYTES: Final = 4 << 20
_VECTORS_AT_ONCE: Final = 1 << 18


def _all_vectors(
    coverage: Coverage, index: ItemIndex, row_items: RowItems, layout: Layout
) -> Iterator[ItemVectors]:
    """Yield all items with their vectors: items in segments, then missing items with NaN.

    Raises
    ------
    StoreError
        If a segment was damaged after `coverage` was computed, or has no vectors of `layout`.
    """
    if layout.offsets is not None:
        yield from _residue_vectors(_undamaged(coverage), row_items, layout)
        return
    yield from _segment_vectors(_undamaged(coverage), index, row_items, layout)
    yield from _missing_vectors(coverage.row_state, index.item_row, layout)


def _undamaged(coverage: Coverage) -> Iterator[tuple[Path, Segment]]:
    """Yield path and content of each segment in use; raise the error of a damaged segment.

    The order is that of `Survey.read`.
    """
    read = partial(read_segment, any_name=True)
    return read_ahead(read, reversed(list(coverage.done.values())))


def _segment_vectors(
    segments: Iterator[tuple[Path, Segment]],
    index: ItemIndex,
    row_items: RowItems,
    layout: Layout,
) -> Iterator[ItemVectors]:
    """Yield items and their vectors, segment by segment; rows without a vector have NaN.

    Vectors of segments whose rows all have one are not copied.

    Raises
    ------
    StoreError
        If a segment has no vectors, or vectors of another shape or type than in `layout`.
    """
    for path, segment in segments:
        vectors = _embeddings_of(path, segment)
        wanted = (len(segment.rows), layout.dim)
        if vectors.shape != wanted or vectors.dtype != layout.dtype:
            raise StoreError(
                f"{path}: the vectors have shape {vectors.shape} and type {vectors.dtype} instead "
                f"of {wanted} and {layout.dtype}. Delete the file and rerun the command of its run "
                "with --resume."
            )
        lacking = (segment.state != RowState.DONE) | index.without_vector(segment.rows)
        if lacking.any():
            vectors = vectors.copy()
            vectors[lacking] = np.nan
        for items, positions in row_items.of(segment.rows):
            yield ItemVectors(items, positions, vectors)


def _missing_vectors(
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


def _embeddings_of(path: Path, segment: Segment) -> RealArray:
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


def _item_offsets(
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


def _residue_vectors(
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

"""Loose segments into embeddings.h5 in the order of the input, each of them read and hashed once.

What a file holds is known only when it was read, and reading it again would cost as much as the
rest together. So every segment is verified and its vectors are put in their places at once; which
rows have none, and all that the file says about them, is written in the end.
"""

import os
import tempfile
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import IO

import numpy as np
import numpy.typing as npt

from virnucpro.durable import write_file
from virnucpro.store.aggregate import (
    ItemIndex,
    copy_vectors,
    describe,
    lay_out,
    placed,
    vectors_of,
)
from virnucpro.store.embeddings_file import EmbeddingsFile, Layout, write_all
from virnucpro.store.loose import LooseCoverage, survey_loose
from virnucpro.store.schema import RowState
from virnucpro.store.segment import Segment

__all__ = ["write_interleaved"]

_GATHERED_BYTES = 128 << 20
"""Vectors held in memory, twice: one part is put in place while the next is read."""
_COPIED_BYTES = 1 << 20

IntArray = npt.NDArray[np.int64]


def write_interleaved(
    path: Path,
    segments: Sequence[Path],
    index: ItemIndex,
    n_rows: int,
    *,
    views: Mapping[str, int] | None = None,
    accept: Callable[[LooseCoverage], None] = lambda _: None,
) -> LooseCoverage:
    """Write what `write_embeddings` would write of the segments' survey, with one reading of each.

    The file appears whole or not at all. Memory stays within a few hundred MB, and 14 bytes a row.

    Parameters
    ----------
    path : Path
        The file to write; an older one stays until the new one is whole.
    segments : sequence of Path
        Files, as `find_segments` lists them; each is verified when it is read.
    index : ItemIndex
        Names the items and tells the row of each.
    n_rows : int
        Rows of the whole run.
    views : mapping of str to int, optional
        As in `write_embeddings`; where nobody knows them, one view of unknown parts.
    accept : callable
        Gets the coverage when all segments were read; the file does not appear when it raises.

    Returns
    -------
    LooseCoverage
        What the segments cover.

    Raises
    ------
    SegmentError, StoreError
        As `survey_loose`, and when vectors are not there, or of another shape than the others.
    OSError
        When the file cannot be written.
    """
    with write_file(path) as stream, ThreadPoolExecutor(1, "interleaver") as thread:
        places = _FileInProgress(stream, index, n_rows, views, thread)
        coverage = survey_loose(segments, n_rows, places.take)
        accept(coverage)
        places.finish(coverage, path.parent)
    return coverage


class _Part:
    """Vectors of some rows, to be put in their places together."""

    def __init__(self, layout: Layout, n_rows: int) -> None:
        self.rows: IntArray = np.empty(n_rows, np.int64)
        self.vectors = np.empty((n_rows, layout.dim), layout.dtype)
        self.used = 0

    def has_room(self, n_rows: int) -> bool:
        return self.used + n_rows <= len(self.rows)

    def take(self, path: Path, segment: Segment) -> None:
        here = slice(self.used, self.used + len(segment.rows))
        copy_vectors(self.vectors[here], path, segment)
        self.rows[here] = segment.rows
        self.used = here.stop


class _FileInProgress:
    """The file that is being filled. It is laid out when the first segment says what it holds."""

    _fingerprint: str
    _layout: Layout
    _file: EmbeddingsFile
    _part: _Part
    _spare: _Part

    def __init__(
        self,
        stream: IO[bytes],
        index: ItemIndex,
        n_rows: int,
        views: Mapping[str, int] | None,
        thread: ThreadPoolExecutor,
    ) -> None:
        self._stream = stream
        self._index = index
        self._n_rows = n_rows
        self._views = views
        self._thread = thread
        self._writing: Future[None] | None = None
        self._counted: dict[int, Path] = {}

    def take(self, path: Path, segment: Segment) -> None:
        """Put a segment's vectors in their places, unless a copy by an earlier path did so."""
        if not self._counted:
            self._begin(path, segment)
        if segment.fingerprint != self._fingerprint:
            return  # the survey will refuse it, or the first one, by name
        first = int(segment.rows[0])
        if first in self._counted and self._counted[first] <= path:
            return
        self._counted[first] = path
        if not self._part.has_room(len(segment.rows)):
            self._put_away()
            if not self._part.has_room(len(segment.rows)):
                self._part = _Part(self._layout, len(segment.rows))
        self._part.take(path, segment)

    def finish(self, coverage: LooseCoverage, folder: Path) -> None:
        """Put the last vectors in place, and say in the file what `coverage` knows by now."""
        self._put_away()
        self._wait()
        if coverage.missing:
            self._mark_gaps(coverage.row_state)
        state, fingerprint = coverage.row_state, coverage.fingerprint
        attributes = describe(state, fingerprint, self._index, complete=coverage.complete)
        layout = replace(self._layout, attributes=attributes)
        vectors_end = self._file.offset + layout.n_items * layout.item_bytes
        with tempfile.TemporaryFile(dir=folder) as final:
            offset = lay_out(final, layout, state, self._index, reserve=False).offset
            size = os.fstat(final.fileno()).st_size
            # What the attributes and the states are makes no difference to where things stand.
            assert (offset, size) == (self._file.offset, os.fstat(self._stream.fileno()).st_size)
            for start, end in ((0, offset), (vectors_end, size)):
                _copy(final, self._stream, start, end)

    def _begin(self, path: Path, segment: Segment) -> None:
        vectors = vectors_of(path, segment)
        self._fingerprint = segment.fingerprint
        unknown = np.full(self._n_rows, RowState.MISSING, np.uint8)
        self._layout = Layout(
            self._index.n_items,
            self._views or {"joined": vectors.shape[1]},
            vectors.dtype,
            describe(unknown, segment.fingerprint, self._index, complete=False),
        )
        self._file = lay_out(self._stream, self._layout, unknown, self._index)
        most = max(1, _GATHERED_BYTES // self._layout.item_bytes)
        self._part = _Part(self._layout, most)
        self._spare = _Part(self._layout, most)

    def _put_away(self) -> None:
        """Have the gathered part written, once the one before it is."""
        self._wait()
        self._writing = self._thread.submit(self._write, self._part)
        self._part, self._spare = self._spare, self._part
        self._part.used = 0

    def _wait(self) -> None:
        if self._writing is not None:
            self._writing.result()

    def _write(self, part: _Part) -> None:
        place = np.full(self._n_rows, -1, np.int32)
        # Of two copies in one part the later counts: it was taken since its path is the earlier.
        place[part.rows[: part.used]] = np.arange(part.used)
        for items, places in placed(self._index.item_row, place.__getitem__, self._layout):
            self._file.write(items, part.vectors[places])

    def _mark_gaps(self, row_state: npt.NDArray[np.uint8]) -> None:
        nothing = np.full((1, self._layout.dim), np.nan, self._layout.dtype)
        place = np.where(row_state == RowState.MISSING, 0, -1)
        for items, places in placed(self._index.item_row, place.__getitem__, self._layout):
            self._file.write(items, nothing[places])


def _copy(source: IO[bytes], target: IO[bytes], first: int, last: int) -> None:
    """Copy the bytes ``first`` to ``last - 1`` to the same place in another file."""
    for start in range(first, last, _COPIED_BYTES):
        data = os.pread(source.fileno(), min(_COPIED_BYTES, last - start), start)
        write_all(target.fileno(), memoryview(data), start)

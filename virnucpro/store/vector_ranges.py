"""Join small vectors into large ranges of items, so that each page of the output is written once.

In the order of the segments, many small vectors are written between others that the disk already
has. The system then writes their pages a second time.
"""

import os
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import closing
from pathlib import Path
from typing import IO, Final

import numpy as np
import numpy.typing as npt

from virnucpro.arrays import BoolArray, ByteArray, Int32Array, IntArray
from virnucpro.store.embeddings_file import ItemVectors, Layout, write_all
from virnucpro.store.segment import is_short_of_space

_PAGE_BYTES: Final = 4096
_RANGE_BYTES: Final = 4 << 20
_MOST_RANGES: Final = 1 << 14
_HELD_BYTES: Final = 64 << 20
_LEAST_BYTES: Final = 1 << 16
"""ByteArray that a group of vectors counts at least, so that few groups are held."""
_COPIED_ITEMS: Final = 1024
"""Vectors per copy; the temporary array of a copy stays in the cache of the CPU."""


def in_ranges(
    vectors: Iterable[ItemVectors], layout: Layout, folder: Path
) -> Iterator[ItemVectors]:
    """Yield the same vectors, joined into ranges of about 4 MB if a vector is smaller than a page.

    A range is yielded when all its items are known, otherwise at the end. If an item is given
    several times, its last vector is the one to use. Incomplete ranges are held in 64 MB of memory,
    then in a file without a name in `folder`; each of its runs of about 64 MB needs up to 64 kB of
    memory. If the disk is too full for this file, all known
    vectors are yielded, and the following ones are not joined.

    Vectors of a page or more, and those of residues, are yielded unchanged.

    Parameters
    ----------
    vectors : iterable of ItemVectors
        Their arrays do not change later.
    layout : Layout
        Number and size of the vectors.
    folder : Path
        Folder of the temporary file; it needs at most 8 bytes more per vector than the vectors.

    Yields
    ------
    ItemVectors
        Its vectors are valid until the next one is requested.

    Raises
    ------
    OSError
        If the file in `folder` cannot be written or read.
    """
    if layout.item_bytes >= _PAGE_BYTES or layout.offsets is not None:
        yield from vectors
        return
    at_once = max(1, _HELD_BYTES // layout.item_bytes)
    with closing(_Ranges(layout, folder)) as ranges:
        for some in vectors:
            for first in range(0, len(some.items), at_once):
                part = slice(first, first + at_once)
                yield from ranges.add(
                    ItemVectors(some.items[part], some.positions[part], some.vectors)
                )
        yield from ranges.rest()


class _Ranges:
    """Vectors of incomplete ranges: the latest in memory, the others in runs in a file.

    A run has records of an item and its vector, sorted by item. The memory for each run is 4 bytes
    per range.
    """

    def __init__(self, layout: Layout, folder: Path) -> None:
        size = layout.item_bytes
        self._layout = layout
        self._length = max(1, _RANGE_BYTES // size, -(-layout.n_items // _MOST_RANGES))
        self._starts = np.arange(0, layout.n_items + self._length, self._length)
        self._sizes = np.diff(np.minimum(self._starts, layout.n_items))
        self._known = np.zeros(len(self._sizes), np.int64)
        self._record = np.dtype([("item", np.int64), ("vector", np.uint8, (size,))])
        self._data = np.empty((min(self._length, layout.n_items), size), np.uint8)
        self._folder: Path | None = folder
        self._file: IO[bytes] | None = None
        self._runs: list[tuple[int, Int32Array]] = []
        """First record of each run, and the first record of each range after this one."""
        self._n_records = 0
        self._yielded_runs = np.zeros_like(self._known)
        """Number of runs when each range was yielded; their vectors of the range are outdated."""
        self._forget()

    def close(self) -> None:
        """Delete the temporary file."""
        if self._file is not None:
            self._file.close()

    def add(self, some: ItemVectors) -> Iterator[ItemVectors]:
        """Add vectors; yield the ranges that are complete now."""
        if self._folder is None:
            yield some
            return
        self._held.append(some)
        numbers, counts = np.unique(some.items // self._length, return_counts=True)
        self._known[numbers] += counts
        for number in numbers[self._known[numbers] >= self._sizes[numbers]].tolist():
            known = self._gather(number)
            self._known[number] = known.sum()
            if known.all():
                yield self._take(number, known)
        size = max(some.bytes.nbytes, len(some.items) * self._layout.item_bytes, _LEAST_BYTES)
        self._held_bytes += size + some.items.nbytes + some.positions.nbytes
        if self._held_bytes >= _HELD_BYTES:
            try:
                self._spill()
            except OSError as error:
                if not is_short_of_space(error):
                    raise
                yield from self.rest()
                self._folder = None

    def rest(self) -> Iterator[ItemVectors]:
        """Yield all vectors that were not yielded before; forget all vectors."""
        for number in np.flatnonzero(self._known).tolist():
            yield self._take(number, self._gather(number))
        self._runs, self._n_records = [], 0
        self._yielded_runs[:] = 0
        self._forget()
        if self._file is not None:
            os.ftruncate(self._file.fileno(), 0)

    def _forget(self) -> None:
        self._held: list[ItemVectors] = []
        self._held_bytes = 0
        self._yielded = np.zeros_like(self._known)
        """Number of groups in `_held` when each range was yielded."""

    def _take(self, number: int, known: BoolArray) -> ItemVectors:
        """Return the gathered vectors of a range."""
        self._known[number] = 0
        self._yielded[number], self._yielded_runs[number] = len(self._held), len(self._runs)
        places = np.flatnonzero(known)
        return ItemVectors(
            self._starts[number] + places, places, self._data.view(self._layout.dtype)
        )

    def _gather(self, number: int) -> BoolArray:
        """Copy the vectors of a range into `_data`; return which are known, bool (n,)."""
        first, last = int(self._starts[number]), int(self._starts[number + 1])
        known = np.zeros(self._sizes[number], np.bool_)
        for records in self._records(number):
            places = records["item"] - first
            _copy(self._data, places, records["vector"], np.arange(len(places)))
            known[places] = True
        for some in self._held[self._yielded[number] :]:
            part = slice(*np.searchsorted(some.items, (first, last)).tolist())
            places = some.items[part] - first
            _copy(self._data, places, some.bytes, some.positions[part])
            known[places] = True
        return known

    def _records(self, number: int) -> Iterator[npt.NDArray[np.void]]:
        """Yield the records of a range from each run in the file."""
        size = self._record.itemsize
        for start, cuts in self._runs[self._yielded_runs[number] :]:
            assert self._file is not None
            first, last = cuts[number : number + 2].tolist()
            if first < last:
                place = (start + first) * size
                data = os.pread(self._file.fileno(), (last - first) * size, place)
                yield np.frombuffer(data, self._record)

    def _spill(self) -> None:
        """Move the vectors in memory to a new run in the file, sorted by item."""
        kept = [
            (some, np.flatnonzero(self._yielded[some.items // self._length] <= number))
            for number, some in enumerate(self._held)
        ]
        items = np.concatenate([some.items[own] for some, own in kept])
        order = np.argsort(items, kind="stable")
        places = np.empty_like(order)
        places[order] = np.arange(len(order))
        records = np.empty(len(order), self._record)
        records["item"] = items[order]
        start = 0
        for some, own in kept:
            mine = places[start : start + len(own)]
            _copy(records["vector"], mine, some.bytes, some.positions[own])
            start += len(own)
        if self._file is None:
            self._file = tempfile.TemporaryFile(dir=self._folder)  # noqa: SIM115 - see close
        at = self._n_records * self._record.itemsize
        write_all(self._file.fileno(), records.view(np.uint8).data, at)
        cuts = np.searchsorted(records["item"], self._starts)
        self._runs.append((self._n_records, cuts.astype(np.int32)))
        self._n_records += len(records)
        self._forget()


def _copy(target: ByteArray, places: IntArray, source: ByteArray, positions: IntArray) -> None:
    """Set ``target[places] = source[positions]``; of equal places the last one counts."""
    for first in range(0, len(places), _COPIED_ITEMS):
        part = slice(first, first + _COPIED_ITEMS)
        target[places[part]] = source[positions[part]]

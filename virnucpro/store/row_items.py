"""Find the items of given rows: the inversion of a run's column `item_row`, in bounded memory."""

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Self

import numpy as np

from virnucpro.arrays import IntArray
from virnucpro.store.embeddings_file import write_all

_BUCKET_BITS = 15
"""Binary logarithm of the rows per bucket; an entry has these low bits of its row."""
_ITEMS_AT_ONCE = 1 << 20
_ENTRY_BYTES = 8


class RowItems:
    """The items of each row, sorted once into a temporary file of 8 bytes per item.

    A counting sort divides the items into buckets of consecutive rows. An entry of a bucket is
    int64: the item, and the low bits of its row. Entries are ascending by item. The file has no
    name; leaving the ``with`` block deletes it.

    Parameters
    ----------
    item_row : numpy.ndarray
        int64 (n_items,), row of each item; read twice in blocks.
    folder : Path, optional
        Folder of the temporary file; default: that of the system.

    Raises
    ------
    OSError
        If the temporary file cannot be written.
    """

    def __init__(self, item_row: IntArray, folder: Path | None = None) -> None:
        counts = np.zeros(1, np.int64)
        for first in range(0, len(item_row), _ITEMS_AT_ONCE):
            block = np.bincount(item_row[first : first + _ITEMS_AT_ONCE] >> _BUCKET_BITS)
            counts = np.pad(counts, (0, max(0, len(block) - len(counts))))
            counts[: len(block)] += block
        self._starts = np.concatenate([[0], np.cumsum(counts)])
        self._file = tempfile.TemporaryFile(dir=folder)  # noqa: SIM115 - closed by __exit__
        try:
            self._fill(item_row)
        except BaseException:
            self._file.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def of(self, rows: IntArray) -> Iterator[tuple[IntArray, IntArray]]:
        """Yield all items of the given rows, in groups of at most a million.

        Parameters
        ----------
        rows : numpy.ndarray
            int64 (n,), n >= 1, consecutive numbers, as those of a segment.

        Yields
        ------
        items : numpy.ndarray
            int64 (m,), ascending.
        positions : numpy.ndarray
            int64 (m,), position of each item's row in `rows`.
        """
        first, last = int(rows[0]), int(rows[-1])
        for bucket in range(first >> _BUCKET_BITS, (last >> _BUCKET_BITS) + 1):
            for entries in self._bucket(bucket):
                positions = (bucket << _BUCKET_BITS) + _low(entries) - first
                here = np.flatnonzero((positions >= 0) & (positions < len(rows)))
                if here.size:
                    yield entries[here] >> _BUCKET_BITS, positions[here]

    def _fill(self, item_row: IntArray) -> None:
        """Write each item into its bucket."""
        ends = self._starts[:-1].copy()
        for first in range(0, len(item_row), _ITEMS_AT_ONCE):
            rows = item_row[first : first + _ITEMS_AT_ONCE]
            entries = (np.arange(first, first + len(rows)) << _BUCKET_BITS) | _low(rows)
            bucket = rows >> _BUCKET_BITS
            # numpy sorts integers of 16 bits by radix.
            small = bucket.astype(np.min_scalar_type(len(ends)))
            data = entries[np.argsort(small, kind="stable")].view(np.uint8).data
            counts = np.bincount(bucket)
            cuts = np.concatenate([[0], np.cumsum(counts)])
            for number in np.flatnonzero(counts).tolist():
                part = data[cuts[number] * _ENTRY_BYTES : cuts[number + 1] * _ENTRY_BYTES]
                write_all(self._file.fileno(), part, int(ends[number]) * _ENTRY_BYTES)
            ends[: len(counts)] += counts

    def _bucket(self, number: int) -> Iterator[IntArray]:
        if number + 1 >= len(self._starts):
            return  # rows after the last row of an item
        for start in range(self._starts[number], self._starts[number + 1], _ITEMS_AT_ONCE):
            size = min(_ITEMS_AT_ONCE, int(self._starts[number + 1]) - start)
            data = os.pread(self._file.fileno(), size * _ENTRY_BYTES, start * _ENTRY_BYTES)
            yield np.frombuffer(data, np.int64)


def _low(values: IntArray) -> IntArray:
    low: IntArray = values & ((1 << _BUCKET_BITS) - 1)
    return low

"""Assign a row to each distinct item or piece, in memory or, for very many, in temporary files.

On disk, items are divided twice: by digest into buckets, which find the first item of each digest,
and back into blocks of consecutive items. Rows are a counting sort of first items by length. All
files are written and read in order. Their sizes are known only at the end, so they are appended to.
"""

import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from virnucpro.arrays import AnyArray, BoolArray, HashArray, Int32Array, IntArray
from virnucpro.sequences.columns import (
    Column,
    ColumnFile,
    ColumnWriter,
    Folder,
    open_column,
    write_column,
)
from virnucpro.sequences.items import PIECE_ITEM

ROW_COLUMNS = ("item_row", "piece_row", "row_lengths", "row_first_base", "row_span", "row_frame")
"""Columns that `write_rows` writes."""

IN_MEMORY_ITEMS = 10**8
"""More items than this are sorted on disk; in memory they would take 71 bytes each."""
BLOCK_ITEMS = 1 << 22
"""Items of a block and of a bucket; about 130 bytes of memory each."""

_SOURCES = ("item_digest", "item_length", "item_frame", "item_first_base", "item_span")
"""Columns of all items; all but ``item_frame`` continue with the pieces."""

_DIGESTS = [("digest", "<u8", (2,)), ("item", "<i8"), ("length", "<i4")]
_REPEATS = [("item", "<i8"), ("first", "<i8")]
_PLACES = [("item", "<i8"), ("row", "<i8")]
_ROWS = [
    ("row", "<i8"),
    ("row_first_base", "<i8"),
    ("row_lengths", "<i4"),
    ("row_span", "<i4"),
    ("row_frame", "u1"),
]

_Records: TypeAlias = AnyArray
"""Structured array ``(n,)``."""


def distinct_rows(digests: HashArray, lengths: Int32Array) -> tuple[IntArray, IntArray]:
    """Assign a row to each distinct item: longest first, equal lengths by first appearance.

    Parameters
    ----------
    digests
        ``(n_items, 2)`` uint64; items with equal digests are identical.
    lengths
        ``(n_items,)`` int32; items with equal digests have equal lengths.

    Returns
    -------
    item_row
        ``(n_items,)`` int64: the row of each item.
    first_item
        ``(n_rows,)`` int64: the first item of each row.
    """
    if not len(digests):
        return np.empty(0, np.int64), np.empty(0, np.int64)
    # Several times as fast as lexsort; different digests almost always differ in the first half.
    order = np.argsort(digests[:, 0])
    new = _changes(digests[order, 0])
    if (_changes(digests[order, 1]) & ~new).any():
        order = np.lexsort((digests[:, 1], digests[:, 0]))
        new = _changes(digests[order, 0]) | _changes(digests[order, 1])
    group_first = np.minimum.reduceat(order, np.flatnonzero(new))
    # One number for length and first item, of which there are fewer than 2**32.
    by_rank = np.argsort(group_first - (lengths[group_first].astype(np.int64) << 32))
    row_of_group = np.empty(len(by_rank), np.int64)
    row_of_group[by_rank] = np.arange(len(by_rank))
    item_row = np.empty(len(order), np.int64)
    item_row[order] = row_of_group[np.cumsum(new) - 1]
    return item_row, group_first[by_rank]


def _changes(values: IntArray) -> BoolArray:
    """Return whether each value differs from the one before it."""
    return np.concatenate(([True], values[1:] != values[:-1]))


def write_rows(folder: Folder) -> dict[str, ColumnFile]:
    """Assign a row to each distinct item and write the row columns; return sizes and checksums.

    Parameters
    ----------
    folder
        Folder with the columns of items and pieces, temporary columns included.

    Raises
    ------
    OSError
        If a file cannot be written. No temporary file is left.
    """
    columns = {name: open_column(folder, name) for name in _SOURCES}
    if isinstance(folder, Path) and len(columns["item_length"].values) > IN_MEMORY_ITEMS:
        with tempfile.TemporaryDirectory(dir=folder, prefix="rows-") as scratch:
            return _RowsOnDisk(columns, Path(scratch)).write(folder)
    digests = np.array(columns["item_digest"].values).reshape(-1, 2)
    item_row, first_item = distinct_rows(digests, columns["item_length"].values)
    n_items = len(columns["item_frame"].values)
    owners = {"item_row": item_row[:n_items], "piece_row": item_row[n_items:]}
    rows = {**owners, **_located(columns, first_item)}
    return {name: write_column(folder, name, values) for name, values in rows.items()}


def _located(columns: dict[str, Column], items: IntArray) -> dict[str, AnyArray]:
    """Return the columns whose names begin with ``row`` for rows whose first items are given."""
    column = {name: values.values for name, values in columns.items()}
    frame = np.full(len(items), PIECE_ITEM, np.uint8)
    own = items < len(column["item_frame"])
    frame[own] = column["item_frame"][items[own]]
    return {
        "row_lengths": column["item_length"][items],
        "row_first_base": column["item_first_base"][items],
        "row_span": column["item_span"][items],
        "row_frame": frame,
    }


class _RowsOnDisk:
    """Sorts the items of an index through temporary files in the folder `scratch`.

    An entry is the first item with its digest within its block. Only entries are divided into
    buckets, so a bucket stays small if one item is repeated very often.
    """

    def __init__(self, columns: dict[str, Column], scratch: Path) -> None:
        self._columns = columns
        self._n_items = len(columns["item_length"].values)
        self._n_blocks = -(-self._n_items // BLOCK_ITEMS)
        self._by_digest = _Divided(scratch / "digests", _DIGESTS)
        self._entry_of = _Divided(scratch / "entries", "<i4")
        self._firsts = _Divided(scratch / "firsts", "<i8")
        self._repeats = _Divided(scratch / "repeats", _REPEATS)
        self._places = _Divided(scratch / "places", _PLACES)
        self._rows = _Divided(scratch / "rows", _ROWS)

    def write(self, folder: Path) -> dict[str, ColumnFile]:
        """Write the row columns into `folder`; return sizes and checksums."""
        for block in range(self._n_blocks):
            self._divide_by_digest(block)
        n_rows_of: Counter[int] = Counter()
        for bucket in range(self._n_blocks):
            n_rows_of.update(self._find_firsts(bucket))
        next_row = _NextRows(n_rows_of)
        n_own = len(self._columns["item_frame"].values)
        with ExitStack() as stack:
            writers = {
                name: stack.enter_context(ColumnWriter(folder, name)) for name in ROW_COLUMNS
            }
            for block in range(self._n_blocks):
                owned = self._item_rows(block, next_row)
                cut = max(0, n_own - block * BLOCK_ITEMS)
                writers["item_row"].append(owned[:cut])
                writers["piece_row"].append(owned[cut:])
            for block in range(-(-n_rows_of.total() // BLOCK_ITEMS)):
                rows = self._rows.read(block)
                rows = rows[np.argsort(rows["row"])]
                for name in ROW_COLUMNS[2:]:
                    writers[name].append(rows[name])
            return {name: writer.close() for name, writer in writers.items()}

    def _divide_by_digest(self, block: int) -> None:
        """Find the entries of a block of items and divide them into buckets by digest."""
        first, last = self._bounds(block)
        digests = self._columns["item_digest"].values[2 * first : 2 * last].reshape(-1, 2)
        # With equal lengths, rows are in the order of their first items.
        group, found = distinct_rows(digests, np.zeros(last - first, np.int32))
        self._entry_of.append(block, found[group])
        lengths = self._columns["item_length"].values[first:last][found]
        entries = _records(_DIGESTS, digest=digests[found], item=found + first, length=lengths)
        # A digest is a cryptographic hash: its high bits divide items evenly.
        high = (entries["digest"][:, 0] >> np.uint64(32)).astype(np.int64)
        self._by_digest.divide((high * self._n_blocks) >> 32, entries)
        self._release()

    def _find_firsts(self, bucket: int) -> dict[int, int]:
        """Divide first items and their repetitions; return the number of rows of each length."""
        entries = self._by_digest.read(bucket)
        # Blocks were divided in order, so the entries of a bucket are in the order of items.
        group, found = distinct_rows(entries["digest"], np.zeros(len(entries), np.int32))
        item, first = entries["item"], entries["item"][found]
        self._firsts.divide(first // BLOCK_ITEMS, first)
        repeated = item != first[group]
        repeats = _records(_REPEATS, item=item[repeated], first=first[group][repeated])
        self._repeats.divide(repeats["first"] // BLOCK_ITEMS, repeats)
        lengths, counts = np.unique(entries["length"][found], return_counts=True)
        return dict(zip(lengths.tolist(), counts.tolist(), strict=True))

    def _item_rows(self, block: int, next_row: Callable[[IntArray], IntArray]) -> IntArray:
        """Assign rows to the first items of a block; return the rows of all its items.

        A first item is in the same block as its repetition, or in an earlier one.
        """
        start, last = self._bounds(block)
        firsts = np.sort(self._firsts.read(block))
        located = _located(self._columns, firsts)
        rows = next_row(located["row_lengths"])
        self._rows.divide(rows // BLOCK_ITEMS, _records(_ROWS, row=rows, **located))
        row_of = np.empty(last - start, np.int64)
        row_of[firsts - start] = rows
        for repeats in self._repeats.parts(block):
            places = _records(_PLACES, item=repeats["item"], row=row_of[repeats["first"] - start])
            self._places.divide(places["item"] // BLOCK_ITEMS, places)
        for places in self._places.parts(block):
            row_of[places["item"] - start] = places["row"]
        self._release()
        return row_of[self._entry_of.read(block)]

    def _bounds(self, block: int) -> tuple[int, int]:
        return block * BLOCK_ITEMS, min((block + 1) * BLOCK_ITEMS, self._n_items)

    def _release(self) -> None:
        for column in self._columns.values():
            column.release()


class _NextRows:
    """Numbers rows: longest first, equal lengths in the order of calls.

    Parameters
    ----------
    n_rows_of
        Number of rows of each length.
    """

    def __init__(self, n_rows_of: Counter[int]) -> None:
        self._lengths = np.array(sorted(n_rows_of), np.int64)
        counts = np.array([n_rows_of[length] for length in self._lengths.tolist()], np.int64)
        self._next = counts.sum() - np.cumsum(counts)

    def __call__(self, lengths: IntArray) -> IntArray:
        """Return the next row of each length."""
        order = np.argsort(lengths, kind="stable")
        kinds, first, counts = np.unique(lengths[order], return_index=True, return_counts=True)
        places = np.searchsorted(self._lengths, kinds)
        rows = np.empty(len(lengths), np.int64)
        rows[order] = np.arange(len(lengths)) + np.repeat(self._next[places] - first, counts)
        self._next[places] += counts
        return rows


class _Divided:
    """Records in numbered temporary files; a file is deleted when it has been read."""

    def __init__(self, folder: Path, dtype: npt.DTypeLike) -> None:
        folder.mkdir()
        self._folder = folder
        self._dtype = np.dtype(dtype)

    def append(self, number: int, records: _Records) -> None:
        """Append records to one file."""
        with (self._folder / str(number)).open("ab") as stream:
            stream.write(np.asarray(records, self._dtype).tobytes())

    def divide(self, numbers: IntArray, records: _Records) -> None:
        """Append each record to the file of its number; their order is kept."""
        order = np.argsort(numbers, kind="stable")
        cuts = np.flatnonzero(np.diff(numbers[order])) + 1
        for part in np.split(order, cuts) if len(order) else []:
            self.append(int(numbers[part[0]]), records[part])

    def parts(self, number: int) -> Iterator[_Records]:
        """Yield all records of a file in order, in parts of one block."""
        path = self._folder / str(number)
        if not path.exists():
            return
        with path.open("rb") as stream:
            while data := stream.read(BLOCK_ITEMS * self._dtype.itemsize):
                yield np.frombuffer(data, self._dtype)
        path.unlink()

    def read(self, number: int) -> _Records:
        """Return all records of a file in order."""
        return np.concatenate([np.empty(0, self._dtype), *self.parts(number)])


def _records(dtype: npt.DTypeLike, **fields: npt.ArrayLike) -> _Records:
    """Return a structured array of the given fields."""
    values = {name: np.asarray(field) for name, field in fields.items()}
    records = np.empty(len(next(iter(values.values()))), dtype)
    for name, field in values.items():
        records[name] = field
    return records

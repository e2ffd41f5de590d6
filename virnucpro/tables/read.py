"""Read tables: all rows in blocks, or some rows by their numbers; from a file or from a run."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import chain, islice
from pathlib import Path
from typing import IO, Final, Protocol

import numpy as np

from virnucpro.arrays import IntArray
from virnucpro.errors import StoreError
from virnucpro.tables.cells import NA, rounded
from virnucpro.tables.schema import Block, Column, TableBlock, Values
from virnucpro.tables.source import RunScores
from virnucpro.tables.write import in_blocks

_LINES_AT_ONCE: Final = 1 << 14
_BYTES_AT_ONCE: Final = 1 << 23
_FAR: Final = 1 << 12
"""Rows of a larger distance are not computed together."""


class ReadableTable(Protocol):
    """Interface of `StoredTable` and `ComputedTable`: both give equal values."""

    path: Path

    def blocks(self, names: Sequence[str]) -> Iterator[Block]:
        """Yield the columns `names` of all rows, in blocks; the first block has no rows."""

    def rows(self, numbers: IntArray, names: Sequence[str]) -> Block:
        """Return the columns `names` of some rows, in the order of their numbers from 0."""


class ComputedTable:
    """A table of a run, in memory, and its file."""

    def __init__(self, table: type[TableBlock], path: Path, run: RunScores) -> None:
        self._table, self.path, self._run = table, path, run

    def blocks(self, names: Sequence[str]) -> Iterator[Block]:
        """Yield the columns `names` of all rows, in blocks; the first block has no rows."""
        yield self._block(np.arange(0), names)
        yield from (self._block(rows, names) for rows in in_blocks(self._table.all_rows(self._run)))

    def rows(self, numbers: IntArray, names: Sequence[str]) -> Block:
        """Return the columns `names` of some rows, in the order of their numbers from 0."""
        wanted, place = np.unique(numbers, return_inverse=True)
        near = np.split(wanted, np.flatnonzero(np.diff(wanted) > _FAR) + 1)
        block = joined([self._block(rows, names) for rows in near])
        return {
            name: [values[n] for n in place] if isinstance(values, list) else values[place]
            for name, values in block.items()
        }

    def _block(self, rows: IntArray, names: Sequence[str]) -> Block:
        block, columns = self._table(self._run, rows), self._table.columns
        return {name: _as_written(columns[name], columns[name].values(block)) for name in names}


def _as_written(column: Column, values: Values) -> Values:
    return rounded(values) if column.kind == "number" and isinstance(values, np.ndarray) else values


def joined(blocks: Iterable[Block]) -> Block:
    """Return the columns of all rows of some blocks, of which there is one or more."""
    first, *others = blocks
    return {
        name: [*chain(values, *(block[name] for block in others))]
        if isinstance(values, list)
        else np.concatenate([values, *(block[name] for block in others)])
        for name, values in first.items()
    }


class StoredTable:
    """A table of a run in its file.

    Methods raise StoreError if the file is missing, lacks a column, or is not as it was written.
    """

    def __init__(self, table: type[TableBlock], path: Path) -> None:
        self._table, self.path = table, path

    def blocks(self, names: Sequence[str]) -> Iterator[Block]:
        """Yield the columns `names` of all rows, in blocks; the first block has no rows."""
        with _opened(self.path) as stream:
            header, line = self._header(stream, names)
            yield self._parsed(names, header, [])
            first = 2
            while lines := list(islice(stream, _LINES_AT_ONCE)):
                text = b"".join(lines).decode(errors="replace")
                cells = [line.split("\t") for line in text.rstrip("\n").split("\n")]
                if wrong := [n for n, row in enumerate(cells, first) if len(row) != len(header)]:
                    raise damaged(self.path, f"line {wrong[0]} has not {len(header)} cells")
                yield self._parsed(names, header, cells)
                first += len(lines)
                line = lines[-1]
            if not line.endswith(b"\n"):
                raise damaged(self.path, "its last line is not complete")

    def rows(self, numbers: IntArray, names: Sequence[str]) -> Block:
        """Return the columns `names` of some rows, in the order of their numbers from 0."""
        cells = []
        with _opened(self.path) as stream:
            header, _ = self._header(stream, names)
            for offset in _offsets(self.path, numbers).tolist():
                stream.seek(offset)
                cells.append(stream.readline().decode(errors="replace").rstrip("\n").split("\t"))
        if any(len(row) != len(header) for row in cells):
            raise damaged(self.path, f"a line has not {len(header)} cells")
        return self._parsed(names, header, cells)

    def _header(self, stream: IO[bytes], names: Sequence[str]) -> tuple[list[str], bytes]:
        line = stream.readline()
        header = line.decode(errors="replace").rstrip("\n").split("\t")
        if missing := [name for name in names if name not in header]:
            raise damaged(self.path, f"it has no column {missing[0]}")
        return header, line

    def _parsed(self, names: Sequence[str], header: list[str], cells: list[list[str]]) -> Block:
        columns = list(zip(*cells, strict=True)) if cells else [()] * len(header)
        block = {}
        for name in names:
            try:
                block[name] = _values(self._table.columns[name], columns[header.index(name)])
            except ValueError as error:
                raise damaged(self.path, f"column {name}: {error}") from error
        return block


def _values(column: Column, cells: Sequence[str]) -> Values:
    if column.kind == "integer":
        return np.fromiter(map(int, cells), np.int64, len(cells))
    if column.kind in ("count", "number"):
        return np.array([np.nan if cell == NA else float(cell) for cell in cells], np.float64)
    return list(cells)


@contextmanager
def _opened(path: Path) -> Iterator[IO[bytes]]:
    try:
        stream = path.open("rb")
    except OSError as error:
        raise damaged(path, str(error.strerror)) from error
    with stream:
        yield stream


def damaged(path: Path, reason: str) -> StoreError:
    """Return the error for a table that is not as it was written."""
    return StoreError(
        f"{path} cannot be read: {reason}. Write the tables of the run again: virnucpro aggregate "
        f"{path.parent}"
    )


def _offsets(path: Path, rows: IntArray) -> IntArray:
    """Return the position in bytes of each row of a table, by counting line ends."""
    wanted, place = np.unique(rows, return_inverse=True)
    offsets = np.empty_like(wanted)
    done, ends_before, position = 0, 0, 0
    with _opened(path) as stream:
        while done < len(wanted) and (block := stream.read(_BYTES_AT_ONCE)):
            ends = np.flatnonzero(np.frombuffer(block, np.uint8) == ord("\n"))
            upto = int(np.searchsorted(wanted, ends_before + len(ends)))
            # row n begins behind line end n, since the header is line 0
            offsets[done:upto] = position + ends[wanted[done:upto] - ends_before] + 1
            done = upto
            ends_before += len(ends)
            position += len(block)
    if done < len(wanted):
        raise damaged(path, "it has fewer rows than its run")
    return offsets[place]

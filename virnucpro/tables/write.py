"""Write tables as tab-separated text, in blocks of rows. Equal data give byte-identical files.

Cells are written without quotes. This is safe because the only free text is the record name: it
ends at the first white space of the header, and `SequenceIndex` encodes unsafe characters.
"""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from virnucpro.arrays import IntArray
from virnucpro.durable import write_file
from virnucpro.tables.schema import TableBlock

if TYPE_CHECKING:
    from virnucpro.tables.source import RunScores

_ROWS_AT_ONCE = 1 << 14


def write_table(path: Path, table: type[TableBlock], run: "RunScores") -> None:
    """Write a table atomically: the file appears under `path` only after it is complete.

    Raises
    ------
    OSError
        When the file cannot be written; an existing file under `path` is unchanged.
    """
    with write_file(path) as stream:
        stream.write(header_line(table))
        stream.writelines(table_lines(table, run))


def header_line(table: type[TableBlock]) -> bytes:
    """Return the first line of a table."""
    return ("\t".join(table.columns) + "\n").encode()


def table_lines(table: type[TableBlock], run: "RunScores") -> Iterator[bytes]:
    """Yield the lines of a table after the first one, many at once."""
    for rows in in_blocks(table.all_rows(run)):
        if len(rows):
            text = "\n".join(map("\t".join, zip(*table(run, rows).texts(), strict=True)))
            yield f"{text}\n".encode()


def in_blocks(rows: int | IntArray | Iterable[IntArray]) -> Iterator[IntArray]:
    """Yield row numbers in blocks of at most 16,384, unless they are in blocks already."""
    if isinstance(rows, int):
        yield from blocks(rows)
    elif isinstance(rows, np.ndarray):
        yield from (rows[block] for block in blocks(len(rows)))
    else:
        yield from rows


def blocks(n_rows: int) -> Iterator[IntArray]:
    """Yield arrays of at most 16,384 line numbers, from 0 to ``n_rows - 1`` in ascending order."""
    for first in range(0, n_rows, _ROWS_AT_ONCE):
        yield np.arange(first, min(first + _ROWS_AT_ONCE, n_rows))

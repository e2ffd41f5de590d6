"""Tables as text: columns in blocks, cells parted by tabs, one line a row, the same bytes always.

Cells are written without quotes. This is safe: the only free text is the name of a record, which
ends at the first white space of the header, and `SequenceIndex` encodes control characters.
"""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from virnucpro.durable import write_file
from virnucpro.sequences.index import SequenceIndex

__all__ = ["NA", "blocks", "codes", "decimals", "integers", "names_warning", "write_tsv"]

NA = "NA"
"""Stands for a value that there is none of."""

_ROWS_AT_ONCE = 1 << 14


def write_tsv(path: Path, header: Sequence[str], tables: Iterable[Sequence[Sequence[str]]]) -> None:
    """Write a table that appears under `path` whole or not at all.

    Parameters
    ----------
    path : Path
        The file to write.
    header : sequence of str
        The columns' names.
    tables : iterable of sequences of columns
        Blocks of the table: for each name of `header` the cells of that column.

    Raises
    ------
    OSError
        When the file cannot be written; what stood under `path` is untouched.
    """
    with write_file(path) as stream:
        stream.write(("\t".join(header) + "\n").encode())
        for columns in tables:
            lines = ("\t".join(row) + "\n" for row in zip(*columns, strict=True))
            stream.write("".join(lines).encode())


def blocks(n_rows: int) -> Iterator[slice]:
    """Part ``0:n_rows`` into blocks that are formatted at a time."""
    for first in range(0, n_rows, _ROWS_AT_ONCE):
        yield slice(first, min(first + _ROWS_AT_ONCE, n_rows))


def integers(values: npt.NDArray[np.integer]) -> list[str]:
    """Format whole numbers."""
    return [str(value) for value in values.tolist()]


def decimals(values: npt.NDArray[np.floating]) -> list[str]:
    """Format numbers with four decimals; `NA` where they are NaN."""
    return [NA if value != value else f"{value:.4f}" for value in values.tolist()]  # noqa: PLR0124  # true of NaN alone


def codes(values: npt.NDArray[np.uint8], names: Sequence[str]) -> list[str]:
    """Replace codes by what they mean."""
    return [names[value] for value in values.tolist()]


def names_warning(index: SequenceIndex) -> str:
    """Return a warning that counts the names with control characters; "" if there are none."""
    count = index.count_encoded_names()
    if not count:
        return ""
    return (
        f"{count:,} sequence names contain control characters, which are percent-encoded in all "
        "outputs (the escape character as %1B)"
    )

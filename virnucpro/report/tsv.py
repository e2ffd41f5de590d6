"""Tables as tab-separated text, written in blocks of rows. Equal data give byte-identical files.

Cells are written without quotes. This is safe because the only free text is the record name: it
ends at the first white space of the header, and `SequenceIndex` encodes control characters.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt

from virnucpro.durable import write_file
from virnucpro.sequences.index import SequenceIndex
from virnucpro.sequences.windows import IntArray

__all__ = [
    "NA",
    "Cells",
    "blocks",
    "codes",
    "decimals",
    "integer_texts",
    "integers",
    "names_warning",
    "write_tsv",
]

NA = "NA"
"""Text of a missing value."""

Cells: TypeAlias = Callable[[IntArray], list[str]]
"""Function that formats the cells of one column for the given rows."""

_ROWS_AT_ONCE = 1 << 14
_SMALL: Final = 10_000
"""Integers below this are looked up."""
_HALF_WAY: Final = 0.499999
"""Distance from a text, in units of the last decimal, from which on the rounding is checked."""


def write_tsv(
    path: Path, rows: int | IntArray | Iterable[IntArray], columns: Mapping[str, Cells]
) -> None:
    """Write a table atomically: the file appears under `path` only after it is complete.

    Parameters
    ----------
    path : Path
        File to write.
    rows : int, IntArray or iterable of IntArray
        Row numbers that are passed to the functions in `columns`, one per line of the table. An int
        n stands for the numbers 0 to n - 1. An iterable yields the numbers in blocks.
    columns : mapping of str to Cells
        For each column name, the function that formats the cells of this column.

    Raises
    ------
    OSError
        When the file cannot be written; an existing file under `path` is unchanged.
    """
    with write_file(path) as stream:
        stream.write(("\t".join(columns) + "\n").encode())
        for selected in _in_blocks(rows):
            if not len(selected):
                continue
            cells = (column(selected) for column in columns.values())
            text = "\n".join(map("\t".join, zip(*cells, strict=True)))
            stream.write(f"{text}\n".encode())


def _in_blocks(rows: int | IntArray | Iterable[IntArray]) -> Iterator[IntArray]:
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


def integers(values: npt.NDArray[np.integer], offset: int = 0) -> Cells:
    """Return a function for `write_tsv` that formats the integers ``values[rows] + offset``."""
    return lambda rows: integer_texts(values[rows] + offset)


def integer_texts(numbers: npt.NDArray[np.integer]) -> list[str]:
    """Return the text of each integer; small ones are looked up, because that is faster."""
    if numbers.size and numbers.min() >= 0 and numbers.max() < _SMALL:
        texts: list[str] = _small_integers()[numbers].tolist()
        return texts
    return list(map(repr, numbers.tolist()))  # repr is faster than str, which is a type


def decimals(values: npt.NDArray[np.floating]) -> Cells:
    """Return a function for `write_tsv` that formats ``values[rows]`` with four decimals.

    NaN is formatted as `NA`. Values from 0 to 1, except those half-way between two texts, are
    looked up, because formatting takes many times as long.
    """

    def cells(rows: IntArray) -> list[str]:
        chosen = values[rows].astype(np.float64)
        scaled = chosen * 10_000
        number = np.rint(scaled)
        known = ~np.signbit(chosen) & (chosen <= 1) & (np.abs(scaled - number) < _HALF_WAY)
        texts = _shares()[np.where(known, number, 0).astype(np.int64)]
        for row in np.flatnonzero(~known).tolist():
            texts[row] = NA if np.isnan(chosen[row]) else f"{chosen[row]:.4f}"
        return list(texts)

    return cells


@cache
def _small_integers() -> npt.NDArray[np.object_]:
    return np.array([str(number) for number in range(_SMALL)], object)


@cache
def _shares() -> npt.NDArray[np.object_]:
    return np.array([f"{number / 10_000:.4f}" for number in range(10_001)], object)


def codes(values: npt.NDArray[Any], names: Sequence[str]) -> Cells:
    """Return a function for `write_tsv` that formats each code in ``values[rows]`` as its name."""
    texts = np.array(names, object)
    return lambda rows: texts[values[rows].astype(np.int64)].tolist()


def names_warning(index: SequenceIndex) -> str:
    """Return a warning if sequence names contain control characters, else ""."""
    if not (count := index.count_encoded_names()):
        return ""
    return (
        f"sequence names with control characters: {count:,}. These characters are percent-encoded "
        "in all outputs, for example %1B for the escape character"
    )

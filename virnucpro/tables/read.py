"""Read tables of a run from its scores: all rows in blocks, or some rows by their numbers."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import Final

import numpy as np

from virnucpro.arrays import IntArray
from virnucpro.tables.cells import rounded
from virnucpro.tables.schema import Block, TableBlock, Values
from virnucpro.tables.source import RunScores
from virnucpro.tables.write import in_blocks

_FAR: Final = 1 << 12
"""Rows of a larger distance are not computed together."""


class RunTable:
    """A table of a run, whose numbers are those of its file."""

    def __init__(self, table: type[TableBlock], run: RunScores) -> None:
        self._table, self._run = table, run

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
        values: dict[str, Values] = {name: columns[name].values(block) for name in names}
        return {
            name: rounded(numbers)
            if columns[name].kind == "number" and isinstance(numbers, np.ndarray)
            else numbers
            for name, numbers in values.items()
        }


def joined(blocks: Iterable[Block]) -> Block:
    """Return the columns of all rows of some blocks, of which there is one or more."""
    first, *others = blocks
    return {
        name: [*chain(values, *(block[name] for block in others))]
        if isinstance(values, list)
        else np.concatenate([values, *(block[name] for block in others)])
        for name, values in first.items()
    }

"""The index of one block: its records, windows, items and rows, with or without letters."""

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any, Final

import numpy as np

from virnucpro.arrays import AnyArray, IntArray
from virnucpro.sequences.builder import read_block, read_sequences
from virnucpro.sequences.columns import (
    COLUMNS,
    OPTIONAL_COLUMNS,
    ColumnFile,
    Header,
    MemoryColumn,
    MemoryFolder,
)
from virnucpro.sequences.index import SequenceIndex
from virnucpro.sequences.input_rules import InputNotes, InputRules
from virnucpro.sequences.scan import Block, Scan
from virnucpro.sequences.spec import IndexSpec

_OF_SEQUENCES: Final = ("bases", "qualities", "row_first_base", "row_span")
"""Columns that only the letters of rows need."""


class BlockIndex(SequenceIndex):
    """The index of the records of a block; records are numbered from 0 in the block.

    Parameters
    ----------
    block
        Place of the records in the inputs.
    folder, files
        The columns.
    names
        Names of all input files of the run, as in outputs.
    """

    def __init__(
        self,
        block: Block,
        spec: IndexSpec,
        folder: MemoryFolder,
        files: Mapping[str, ColumnFile],
        names: Sequence[str] = (),
    ) -> None:
        super().__init__(folder, Header(spec, (), files))
        self.block = block
        self.input_names = [*names]

    def record_origins(self, records: IntArray) -> tuple[IntArray, IntArray]:
        """Return the input file, from 0, and the number in this file, from 1, of each record."""
        files = np.full(len(records), self.block.spans[0].file, np.int64)
        return files, records + self.block.first_record + 1

    def columns(self) -> dict[str, AnyArray]:
        """Return all columns but those of letters."""
        return {name: own for name, own in self._values.items() if name not in _OF_SEQUENCES}


class _LazyLetters(MemoryColumn):
    """A column of letters that is read when the first of them is needed."""

    def __init__(self, name: str, read: Callable[[], bytes]) -> None:
        super().__init__(name)
        self.values = np.empty(0, self._dtype)
        self._read_all: Callable[[], bytes] | None = read

    def read(self, first: int, last: int) -> bytes:
        """Return the values ``first:last``."""
        if self._read_all is not None:
            self._content, self._read_all = self._read_all(), None
        return super().read(first, last)


def index_block(
    scan: Scan, number: int, spec: IndexSpec, rules: InputRules, names: Sequence[str] = ()
) -> tuple[BlockIndex, InputNotes]:
    """Read the records of a block; return their index, with letters, and their trouble.

    Raises
    ------
    InputError
        When the inputs cannot be read, or are not valid.
    """
    block = scan.blocks[number]
    folder, files, notes = read_block(scan.parts(block), spec, rules, block.first_record)
    return BlockIndex(block, spec, folder, files, names), notes


def stored_index(
    columns: Mapping[str, Any],
    block: Block,
    spec: IndexSpec,
    names: Sequence[str],
    scan: Scan | None = None,
    rules: InputRules | None = None,
) -> BlockIndex:
    """Return the index with the columns of `BlockIndex.columns`; other ones are ignored.

    Its letters are read from the inputs of `scan` when they are needed; without a scan, it has
    none.
    """
    folder, files = MemoryFolder(), dict[str, ColumnFile]()
    for name in (*COLUMNS, *OPTIONAL_COLUMNS):
        if name in columns:
            folder[name] = column = MemoryColumn(name)
            column.append(columns[name])
            files[name] = column.close()

    @cache
    def letters() -> tuple[bytes, bytes]:
        if scan is None:
            return b"", b""
        return read_sequences(scan.parts(block), spec, rules or InputRules())

    for name, read in (("bases", lambda: letters()[0]), ("qualities", lambda: letters()[1])):
        folder[name], files[name] = _LazyLetters(name, read), ColumnFile(0, 0)
    return BlockIndex(block, spec, folder, files, names)

"""Columns of records and windows that the report counts: about 40 bytes per record."""

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from itertools import count
from typing import Any, Final

import numpy as np

from virnucpro.arrays import AnyArray, BoolArray, Float32Array, Int32Array, IntArray
from virnucpro.console import shortened
from virnucpro.errors import UsageError
from virnucpro.tables.columns import CALL_NAMES
from virnucpro.tables.read import RunTable
from virnucpro.tables.schema import Block

_NUMBERS: Final[Mapping[str, Any]] = {
    "length": np.int64,
    "n_windows": np.int32,
    "score": np.float32,
    "probability": np.float32,
}
_WORDS: Final = ("call", "status", "reason", "topology", "file", "flags")
_TRACK: Final = ("start", "end", "score")
_SHOWN: Final = 5


@dataclass(frozen=True, slots=True)
class Codes:
    """A column of few different words: `names` by code, and the code of each row."""

    names: tuple[str, ...]
    codes: Int32Array

    def code(self, name: str) -> int:
        """Return the code of a word; -1 if no row has it."""
        return self.names.index(name) if name in self.names else -1

    def counts(self, among: BoolArray | None = None) -> dict[str, int]:
        """Return the number of rows of each word that occurs, among all or some rows."""
        codes = self.codes if among is None else self.codes[among]
        numbers = np.bincount(codes, minlength=len(self.names)).tolist()
        return {name: n for name, n in zip(self.names, numbers, strict=True) if n}


@dataclass(frozen=True, slots=True)
class RecordTable:
    """Columns of predictions.tsv.

    Attributes
    ----------
    table
        The whole table.
    numbers
        ``(n_records,)`` arrays by column; NaN for a missing value.
    words
        Columns of few different words, such as ``call``.
    """

    table: RunTable
    numbers: Mapping[str, AnyArray]
    words: Mapping[str, Codes]

    def __len__(self) -> int:
        """Return the number of records."""
        return len(self.numbers["length"])

    @property
    def calibrated(self) -> bool:
        """Return whether a record has a probability."""
        return bool(np.isfinite(self.numbers["probability"]).any())

    @property
    def evidence(self) -> Float32Array:
        """Return the probability of each record, or its score in a run without probabilities."""
        return self.numbers["probability" if self.calibrated else "score"]

    def called(self, name: str) -> BoolArray:
        """Return which records have the call `name`."""
        return self.having("call", name)

    def having(self, column: str, word: str) -> BoolArray:
        """Return which records have a word in a column of `words`."""
        chosen: BoolArray = self.words[column].codes == self.words[column].code(word)
        return chosen


def read_records(table: RunTable) -> RecordTable:
    """Return the counted columns of predictions.tsv."""
    numbers: dict[str, list[AnyArray]] = {name: [] for name in _NUMBERS}
    codes: dict[str, list[Int32Array]] = {name: [] for name in _WORDS}
    # the words of a column in the order of their first row
    known = {name: defaultdict[str, int](count().__next__) for name in _WORDS}
    known["call"] |= {name: code for code, name in enumerate(CALL_NAMES)}
    for block in table.blocks((*_NUMBERS, *_WORDS)):
        for name, dtype in _NUMBERS.items():
            numbers[name].append(np.asarray(block[name], dtype))
        for name in _WORDS:
            own = map(known[name].__getitem__, block[name])
            codes[name].append(np.fromiter(own, np.int32, len(block[name])))
    return RecordTable(
        table,
        {name: np.concatenate(parts) for name, parts in numbers.items()},
        {name: Codes(tuple(known[name]), np.concatenate(codes[name])) for name in _WORDS},
    )


def read_tracks(windows: RunTable, table: RecordTable, records: IntArray) -> list[Block]:
    """Return start, end and score of the windows of some records, in the order of `records`.

    Windows are in the order of the records.
    """
    counts = table.numbers["n_windows"]
    after = np.cumsum(counts, dtype=np.int64)
    rows = [np.arange(after[n] - counts[n], after[n]) for n in records.tolist()]
    rows_read = windows.rows(np.concatenate(rows), _TRACK)
    ends = np.cumsum(counts[records], dtype=np.int64)
    return [
        {name: rows_read[name][end - counts[n] : end] for name in _TRACK}
        for n, end in zip(records.tolist(), ends.tolist(), strict=True)
    ]


def find_record(
    table: RunTable, name: str | None, file: str | None = None, number: int | None = None
) -> int:
    """Return the row of a record in predictions.tsv, from 0.

    Parameters
    ----------
    name, file, number
        Name of the record, its input file and its number in this file; None for any.

    Raises
    ------
    UsageError
        If no record, or more than one, is so; the message names the nearest names, or the records.
    """
    matches: list[tuple[int, str, int]] = []
    names: dict[str, None] = {}
    row = 0
    for block in table.blocks(("seq_name", "file", "record")):
        for own in zip(*block.values(), strict=True):
            wanted = (name, file, number)
            if all(want in (None, cell) for want, cell in zip(wanted, own, strict=True)):
                matches.append((row, own[1], own[2]))
            row += 1
        names |= dict.fromkeys(block["seq_name"])
    if len(matches) == 1:
        return matches[0][0]
    given = (("named", name), ("of file", file), ("with number", number))
    asked = " ".join(f"{what} {shortened(str(own))}" for what, own in given if own is not None)
    if not matches:
        near = get_close_matches(name or "", names, n=1)
        hint = f": did you mean {shortened(near[0])}?" if near else ""
        raise UsageError(f"the run has no sequence {asked}{hint}")
    choices = "\n".join(
        f"--file {shortened(file)} --record {record}" for _, file, record in matches[:_SHOWN]
    )
    more = f"\nand {len(matches) - _SHOWN:,} more" if len(matches) > _SHOWN else ""
    raise UsageError(
        f"the run has {len(matches):,} sequences {asked}; choose one of them:\n{choices}{more}"
    )

"""Read predictions.tsv: numbers and codes of all records as arrays, single rows on demand.

The memory is about 50 bytes a record, whatever the length of the names.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import IO, Any, Final

import numpy as np
import numpy.typing as npt

from virnucpro.errors import StoreError
from virnucpro.report.tables import CALL_NAMES
from virnucpro.report.tsv import NA

__all__ = ["Codes", "RecordTable", "damaged", "read_columns", "read_records"]

_LINES_AT_ONCE: Final = 1 << 14
_NUMBERS: Final[Mapping[str, Any]] = {
    "length": np.int64,
    "n_windows": np.int32,
    "n_scored": np.int32,
    "score": np.float32,
    "probability": np.float32,
    "fdr": np.float32,
}
_CODES: Final = ("call", "status", "reason", "tier", "likely_source", "topology", "file")
_NEEDED: Final = ("seq_name", "length", "n_windows", "score", "call", "status")


@dataclass(frozen=True, slots=True)
class Codes:
    """A column of few different words: `names` by code, and the code of each row."""

    names: tuple[str, ...]
    codes: npt.NDArray[np.int32]

    def code(self, name: str) -> int:
        """Return the code of a word; -1 if no row has it."""
        return self.names.index(name) if name in self.names else -1

    def counts(self, among: npt.NDArray[np.bool_] | None = None) -> dict[str, int]:
        """Return the number of rows of each word that occurs, among all or some rows."""
        codes = self.codes if among is None else self.codes[among]
        numbers = np.bincount(codes, minlength=len(self.names)).tolist()
        return {name: n for name, n in zip(self.names, numbers, strict=True) if n}


@dataclass(frozen=True, slots=True)
class RecordTable:
    """Content of predictions.tsv.

    Attributes
    ----------
    path
        The table.
    numbers
        ``(n_records,)`` arrays by column; NaN for a missing value. Missing columns are absent.
    words
        Columns of few different words, such as ``call``. Missing columns are absent.
    columns
        Names of all columns of the file.
    offsets
        ``(n_records,)`` position of each row in the file, in bytes.
    """

    path: Path
    numbers: Mapping[str, npt.NDArray[Any]]
    words: Mapping[str, Codes]
    columns: Sequence[str]
    offsets: npt.NDArray[np.int64]

    def __len__(self) -> int:
        """Return the number of records."""
        return len(self.offsets)

    @property
    def calibrated(self) -> bool:
        """Return whether a record has a probability."""
        return "probability" in self.numbers and bool(
            np.isfinite(self.numbers["probability"]).any()
        )

    @property
    def evidence(self) -> npt.NDArray[np.float32]:
        """Return the probability of each record, or its score in a run without probabilities."""
        values: npt.NDArray[np.float32] = self.numbers[
            "probability" if self.calibrated else "score"
        ]
        return values

    def called(self, name: str) -> npt.NDArray[np.bool_]:
        """Return which records have the call `name`."""
        found: npt.NDArray[np.bool_] = self.words["call"].codes == CALL_NAMES.index(name)
        return found

    def rows(self, numbers: Sequence[int]) -> list[dict[str, str]]:
        """Return the cells of some rows, by column, in the order of `numbers`.

        Raises
        ------
        StoreError
            If the file has changed since it was read.
        """
        found: dict[int, dict[str, str]] = {}
        with open_table(self.path) as stream:
            for number in sorted({*numbers}):
                stream.seek(int(self.offsets[number]))
                cells = stream.readline().decode(errors="replace").rstrip("\n").split("\t")
                if len(cells) != len(self.columns):
                    raise damaged(self.path, "it changed while it was read")
                found[number] = dict(zip(self.columns, cells, strict=True))
        return [found[number] for number in numbers]


@contextmanager
def open_table(path: Path) -> Iterator[IO[bytes]]:
    """Open a table of a run for reading.

    Raises
    ------
    StoreError
        If the file is missing or cannot be opened.
    """
    try:
        stream = path.open("rb")
    except OSError as error:
        raise StoreError(
            f"{path} cannot be read: {error.strerror}. Write the tables of the run again: "
            f"virnucpro aggregate {path.parent}"
        ) from error
    with stream:
        yield stream


def damaged(path: Path, reason: str) -> StoreError:
    """Return the error for a table that is not as it was written."""
    return StoreError(
        f"{path} cannot be read: {reason}. Write the tables of the run again: virnucpro aggregate "
        f"{path.parent}"
    )


def read_columns(path: Path, needed: Sequence[str]) -> Iterator[tuple[Sequence[str], Any, Any]]:
    """Yield column names, columns of cells, and lengths of lines in bytes, in blocks of rows.

    The first block has no rows. `columns[i]` is a tuple of the texts of column i.

    Raises
    ------
    StoreError
        If the file is missing, lacks a column of `needed`, a row has another number of cells, or
        the last line does not end.
    """
    with open_table(path) as stream:
        line = stream.readline()
        header = line.decode(errors="replace").rstrip("\n").split("\t")
        if missing := [name for name in needed if name not in header]:
            raise damaged(path, f"it has no column {missing[0]}")
        yield header, [()] * len(header), []
        first = 2
        while lines := list(islice(stream, _LINES_AT_ONCE)):
            cells = [line.split("\t") for line in _decoded(lines)]
            if wrong := [n for n, row in enumerate(cells) if len(row) != len(header)]:
                raise damaged(path, f"line {first + wrong[0]} has not {len(header)} cells")
            yield header, list(zip(*cells, strict=True)), [len(line) for line in lines]
            first += len(lines)
            line = lines[-1]
        if not line.endswith(b"\n"):
            raise damaged(path, "its last line is not complete")


def _decoded(lines: Sequence[bytes]) -> list[str]:
    return b"".join(lines).decode(errors="replace").rstrip("\n").split("\n")


def read_records(path: Path) -> RecordTable:
    """Read predictions.tsv of any version.

    Raises
    ------
    StoreError
        If the file is missing, or is not such a table.
    """
    numbers: dict[str, list[npt.NDArray[Any]]] = {}
    codes: dict[str, list[npt.NDArray[np.int32]]] = {}
    names: dict[str, dict[str, int]] = {}
    lengths = []
    header: Sequence[str] = ()
    start = 0
    for number, (header, columns, line_lengths) in enumerate(read_columns(path, _NEEDED)):
        place = {name: header.index(name) for name in header}
        if not number:
            start = len("\t".join(header).encode()) + 1
            numbers = {name: [] for name in _NUMBERS if name in place}
            codes = {name: [] for name in _CODES if name in place}
            names = {name: {} for name in codes} | {
                "call": {name: code for code, name in enumerate(CALL_NAMES)}
            }
        try:
            for name, found in numbers.items():
                found.append(_numbers(columns[place[name]], _NUMBERS[name]))
        except ValueError as error:
            raise damaged(path, f"column {name}: {error}") from error
        for name, blocks in codes.items():
            known = names[name]
            # the words of a column in the order of their first row
            words = columns[place[name]]
            known |= {
                word: len(known) + i
                for i, word in enumerate(dict.fromkeys(w for w in words if w not in known))
            }
            blocks.append(np.fromiter(map(known.__getitem__, words), np.int32, len(words)))
        lengths.append(np.asarray(line_lengths, np.int64))
    if len(names["call"]) > len(CALL_NAMES):
        raise damaged(path, f"unknown call {list(names['call'])[-1]!r}")
    ends = np.cumsum(np.concatenate(lengths))
    return RecordTable(
        path=path,
        numbers={name: np.concatenate(found) for name, found in numbers.items()},
        words={name: Codes(tuple(names[name]), np.concatenate(codes[name])) for name in codes},
        columns=header,
        offsets=start + np.concatenate([[0], ends[:-1]])[: len(ends)].astype(np.int64),
    )


def _numbers(cells: Sequence[str], dtype: Any) -> npt.NDArray[Any]:  # noqa: ANN401 - a numpy type
    if np.issubdtype(dtype, np.integer):
        return np.fromiter(map(int, cells), dtype, len(cells))
    values = (np.nan if cell == NA else float(cell) for cell in cells)
    return np.fromiter(values, dtype, len(cells))

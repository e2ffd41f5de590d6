"""FASTA or FASTQ files of the records with a call, such as viral.fasta, and of viral stretches."""

import gzip
import io
import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import IO, Final, NamedTuple
from urllib.parse import quote

import numpy as np
import numpy.typing as npt

from virnucpro.classifier.regions import Regions
from virnucpro.durable import write_file
from virnucpro.report.regions import region_names
from virnucpro.report.tables import TABLE_VERSION, origin_columns
from virnucpro.report.tsv import Cells, blocks, decimals, integers
from virnucpro.sequences.index import SequenceIndex
from virnucpro.sequences.windows import IntArray

__all__ = ["write_extract", "write_region_extract"]

_LINE: Final = 80
_LETTERS_AT_ONCE: Final = _LINE << 13
_GZIP_LEVEL: Final = 6
_FIRST_WITH_ORIGIN: Final = 5
"""Version of the tables from which on headers have file and record."""
_SPACE: Final = re.compile(r"\s")


class _Pieces(NamedTuple):
    """Pieces of records: arrays ``(n,)`` of record, start, end (bases, half open) and score.

    `names` returns the names of the pieces with given numbers.
    """

    names: Cells
    record: IntArray
    start: IntArray
    end: IntArray
    score: npt.NDArray[np.floating]


def write_extract(
    path: Path,
    index: SequenceIndex,
    chosen: npt.NDArray[np.bool_],
    score: npt.NDArray[np.floating],
    *,
    fastq: bool = False,
    version: int = TABLE_VERSION,
) -> None:
    """Write the chosen records, in input order; a name that ends in .gz is compressed.

    A header has the name of the record, as in the tables, then ``score=0.9731 length=5386
    file=contigs.fa record=17``; the score is NA for a record without a score. White space in the
    name of the file is percent-encoded. Sequences are normalised: upper case, T instead of U. Equal
    data give equal bytes.

    Parameters
    ----------
    chosen, score
        ``(n_records,)``.
    fastq
        Write FASTQ, in four lines per record; the index must have qualities. Otherwise FASTA.
    version
        Version of the tables; before version 5, headers end with the length.

    Raises
    ------
    OSError
        When the file cannot be written; an existing file is unchanged.
    """
    records = np.flatnonzero(chosen)
    pieces = _Pieces(
        lambda rows: index.record_names(records[rows]),
        records,
        np.zeros_like(records),
        index.record_lengths[records],
        score[records],
    )
    _write(path, _entries(index, pieces, _headers(index, pieces, version), fastq=fastq))


def write_region_extract(
    path: Path,
    index: SequenceIndex,
    regions: Regions,
    *,
    fastq: bool = False,
    version: int = TABLE_VERSION,
) -> None:
    """Write stretches as `write_extract`; names are ``record:start-end``, 1-based.

    The score is the mean score of the stretch.

    Raises
    ------
    OSError
        When the file cannot be written; an existing file is unchanged.
    """
    pieces = _Pieces(
        lambda rows: region_names(index, regions.select(rows)),
        regions.record,
        regions.start,
        regions.end,
        regions.score,
    )
    _write(path, _entries(index, pieces, _headers(index, pieces, version), fastq=fastq))


def _write(path: Path, texts: Iterator[bytes]) -> None:
    with write_file(path) as raw, ExitStack() as stack:
        stream: IO[bytes] = raw
        if path.suffix == ".gz":
            packed = gzip.GzipFile("", "wb", _GZIP_LEVEL, raw, mtime=0)
            stream = stack.enter_context(io.BufferedWriter(stack.enter_context(packed)))
        for text in texts:
            stream.write(text)


def _headers(index: SequenceIndex, pieces: _Pieces, version: int) -> Iterator[str]:
    """Yield the header of each piece, without its first character."""
    fields = {"score": decimals(pieces.score), "length": integers(pieces.end - pieces.start)}
    if version >= _FIRST_WITH_ORIGIN:
        fields |= origin_columns(index, lambda rows: pieces.record[rows])
    for rows in blocks(len(pieces.record)):
        columns = [
            [f"{name}={_SPACE.sub(_encoded, cell)}" for cell in cells(rows)]
            for name, cells in fields.items()
        ]
        yield from map(" ".join, zip(pieces.names(rows), *columns, strict=True))


def _encoded(space: re.Match[str]) -> str:
    return quote(space[0])


def _entries(
    index: SequenceIndex, pieces: _Pieces, headers: Iterator[str], *, fastq: bool
) -> Iterator[bytes]:
    for rows in blocks(len(pieces.record)):
        spans = (array[rows].tolist() for array in (pieces.record, pieces.start, pieces.end))
        for record, start, end in zip(*spans, strict=True):
            yield f"{'@' if fastq else '>'}{next(headers)}\n".encode()
            if fastq:
                yield from _parts(index.record_sequence, record, start, end)
                yield b"\n+\n"
                yield from _parts(index.record_qualities, record, start, end)
                yield b"\n"
                continue
            yield from map(_in_lines, _parts(index.record_sequence, record, start, end))


def _parts(
    read: Callable[[int, int, int], bytes], record: int, start: int, end: int
) -> Iterator[bytes]:
    """Yield the text from start to end of a record in parts of about 0.6 MB."""
    for low in range(start, end, _LETTERS_AT_ONCE):
        yield read(record, low, min(low + _LETTERS_AT_ONCE, end))


def _in_lines(letters: bytes) -> bytes:
    """Return letters in lines of 80, each with its end."""
    n_lines = len(letters) // _LINE
    lines = np.full((n_lines, _LINE + 1), ord("\n"), np.uint8)
    lines[:, :_LINE] = np.frombuffer(letters, np.uint8, n_lines * _LINE).reshape(n_lines, _LINE)
    rest = letters[n_lines * _LINE :]
    return lines.tobytes() + (rest + b"\n" if rest else b"")

"""FASTA files of the records with a call, such as viral.fasta, and of viral stretches."""

import gzip
import io
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import IO, Final

import numpy as np
import numpy.typing as npt

from virnucpro.classifier.regions import Regions
from virnucpro.durable import write_file
from virnucpro.report.regions import region_names
from virnucpro.report.tsv import blocks
from virnucpro.sequences.index import SequenceIndex

__all__ = ["write_extract", "write_region_extract"]

_LINE: Final = 80
_LINES_AT_ONCE: Final = 1 << 13
_GZIP_LEVEL: Final = 6


def write_extract(
    path: Path, index: SequenceIndex, chosen: npt.NDArray[np.bool_], score: npt.NDArray[np.floating]
) -> None:
    """Write the chosen records as FASTA, in input order; a name that ends in .gz is compressed.

    A header has the name of the record, as in the tables, then ``score=0.9731 length=5386``; the
    score is NA for a record without a score. Sequences are normalised: upper case, T instead of U.
    Equal data give equal bytes.

    Parameters
    ----------
    chosen, score
        ``(n_records,)``.

    Raises
    ------
    OSError
        When the file cannot be written; an existing file is unchanged.
    """
    _write(path, _records(index, np.flatnonzero(chosen), score))


def write_region_extract(path: Path, index: SequenceIndex, regions: Regions) -> None:
    """Write stretches as FASTA, as `write_extract`; names are ``record:start-end``, 1-based.

    The score is the mean score of the stretch.

    Raises
    ------
    OSError
        When the file cannot be written; an existing file is unchanged.
    """
    _write(path, _stretches(index, regions))


def _write(path: Path, entries: Iterator[bytes]) -> None:
    with write_file(path) as raw, ExitStack() as stack:
        stream: IO[bytes] = raw
        if path.suffix == ".gz":
            packed = gzip.GzipFile("", "wb", _GZIP_LEVEL, raw, mtime=0)
            stream = stack.enter_context(io.BufferedWriter(stack.enter_context(packed)))
        for text in entries:
            stream.write(text)


def _records(
    index: SequenceIndex, records: npt.NDArray[np.int64], score: npt.NDArray[np.floating]
) -> Iterator[bytes]:
    for block in blocks(len(records)):
        names = index.record_names(records[block])
        for record, name in zip(records[block].tolist(), names, strict=True):
            length = int(index.record_lengths[record])
            yield from _entry(index, name, float(score[record]), record, 0, length)


def _stretches(index: SequenceIndex, regions: Regions) -> Iterator[bytes]:
    for block in blocks(len(regions.record)):
        part = regions.select(block)
        columns = (part.score, part.record, part.start, part.end)
        values = zip(*(column.tolist() for column in columns), strict=True)
        for name, one in zip(region_names(index, part), values, strict=True):
            yield from _entry(index, name, *one)


def _entry(
    index: SequenceIndex, name: str, score: float, record: int, start: int, end: int
) -> Iterator[bytes]:
    shown = "NA" if np.isnan(score) else f"{score:.4f}"
    yield f">{name} score={shown} length={end - start}\n".encode()
    step = _LINE * _LINES_AT_ONCE
    for low in range(start, end, step):
        bases = index.record_sequence(record, low, min(low + step, end))
        lines = (bases[place : place + _LINE] for place in range(0, len(bases), _LINE))
        yield b"\n".join(lines) + b"\n"

"""FASTA files of the records with a call, such as viral.fasta."""

import gzip
import io
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import IO, Final

import numpy as np
import numpy.typing as npt

from virnucpro.durable import write_file
from virnucpro.report.tsv import blocks
from virnucpro.sequences.index import SequenceIndex

__all__ = ["write_extract"]

_LINE: Final = 80
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
    records = np.flatnonzero(chosen)
    with write_file(path) as raw, ExitStack() as stack:
        stream: IO[bytes] = raw
        if path.suffix == ".gz":
            packed = gzip.GzipFile("", "wb", _GZIP_LEVEL, raw, mtime=0)
            stream = stack.enter_context(io.BufferedWriter(stack.enter_context(packed)))
        for block in blocks(len(records)):
            for text in _entries(index, records[block], score):
                stream.write(text)


def _entries(
    index: SequenceIndex, records: npt.NDArray[np.int64], score: npt.NDArray[np.floating]
) -> Iterator[bytes]:
    names = index.record_names(records)
    for record, name in zip(records.tolist(), names, strict=True):
        length = int(index.record_lengths[record])
        value = float(score[record])
        shown = "NA" if np.isnan(value) else f"{value:.4f}"
        yield f">{name} score={shown} length={length}\n".encode()
        for start in range(0, length, _LINE):
            yield index.record_sequence(record, start, min(start + _LINE, length)) + b"\n"

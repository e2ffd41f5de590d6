"""The three FASTA files of `virnucpro frames`, byte for byte as the published tool writes them."""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Literal

import numpy as np

from virnucpro.durable import write_file
from virnucpro.report.tsv import blocks
from virnucpro.sequences.index import SequenceIndex

__all__ = ["write_frames_files"]

_LINE = 60


def write_frames_files(
    index: SequenceIndex, chunked: Path, nucleotide: Path, protein: Path
) -> None:
    """Write the windows and the open frames of an index of kind `frames`, in input order.

    Parameters
    ----------
    index : SequenceIndex
        Holds windows and frames.
    chunked : Path
        All windows, their bases in lines of 60.
    nucleotide : Path
        The bases of all open frames, each on one line.
    protein : Path
        Their peptides, likewise.

    Raises
    ------
    OSError
        When a file cannot be written; an older one of that name is untouched.
    """
    _write(chunked, _windows(index))
    _write(nucleotide, _frames(index, "nucleotide"))
    _write(protein, _frames(index, "protein"))


def _windows(index: SequenceIndex) -> Iterator[tuple[str, bytes]]:
    for block in blocks(index.n_windows):
        windows = np.arange(block.start, block.stop)
        for window, name in zip(windows.tolist(), index.window_names(windows), strict=True):
            bases = index.window_sequence(window)
            lines = (bases[start : start + _LINE] for start in range(0, len(bases), _LINE))
            yield name, b"\n".join(lines)


def _frames(
    index: SequenceIndex, view: Literal["nucleotide", "protein"]
) -> Iterator[tuple[str, bytes]]:
    for block in blocks(index.n_items):
        sequences = index.sequences(index.item_row[block], view)
        names = index.item_names(np.arange(block.start, block.stop))
        yield from zip(names, sequences, strict=True)


def _write(path: Path, entries: Iterable[tuple[str, bytes]]) -> None:
    with write_file(path) as stream:
        stream.writelines(b">%b\n%b\n" % (name.encode(), text) for name, text in entries)

"""The three FASTA files of `virnucpro frames`, byte-identical to those of the published tool."""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Literal

from virnucpro.durable import write_file
from virnucpro.report.tsv import blocks
from virnucpro.sequences.index import SequenceIndex

__all__ = ["write_frames_files"]

_LINE = 60


def write_frames_files(
    index: SequenceIndex, chunked: Path, nucleotide: Path, protein: Path
) -> None:
    """Write three FASTA files: all windows, the bases of all open frames, and their peptides.

    An open frame is a reading frame without a stop codon (an item). The order is the input order.

    Parameters
    ----------
    index : SequenceIndex
        Index of kind `frames`, with windows and open frames.
    chunked : Path
        File for the bases of all windows, in lines of 60.
    nucleotide : Path
        File for the bases of all open frames, one line per frame.
    protein : Path
        File for the peptides of all open frames, one line per frame.

    Raises
    ------
    OSError
        When a file cannot be written; an existing file of that name is unchanged.
    """
    _write(chunked, _windows(index))
    _write(nucleotide, _frames(index, "nucleotide"))
    _write(protein, _frames(index, "protein"))


def _windows(index: SequenceIndex) -> Iterator[tuple[str, bytes]]:
    for windows in blocks(index.n_windows):
        for window, name in zip(windows.tolist(), index.window_names(windows), strict=True):
            bases = index.window_sequence(window)
            lines = (bases[start : start + _LINE] for start in range(0, len(bases), _LINE))
            yield name, b"\n".join(lines)


def _frames(
    index: SequenceIndex, view: Literal["nucleotide", "protein"]
) -> Iterator[tuple[str, bytes]]:
    for items in blocks(index.n_items):
        sequences = index.sequences(index.item_row[items], view)
        yield from zip(index.item_names(items), sequences, strict=True)


def _write(path: Path, entries: Iterable[tuple[str, bytes]]) -> None:
    with write_file(path) as stream:
        stream.writelines(b">%b\n%b\n" % (name.encode(), text) for name, text in entries)

"""Items of windows: open frames, peptides and token ids, by the program's own rules."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from virnucpro.encoders.dnabert_s.encoder import BpeTokeniser
from virnucpro.encoders.esm2.config import tokenise_residues
from virnucpro.sequences.translation import (
    genetic_code,
    open_frames,
    peptide,
    reverse_complement,
)

__all__ = ["GENETIC_CODE", "Items", "cut_items"]

GENETIC_CODE = 11
"""NCBI's number: bacteria, archaea, plastids and their viruses; the stops are the standard ones."""

IntArray = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Items:
    """The stop-free frames of windows, in the order of the windows.

    Attributes
    ----------
    window
        (n_items,) int64, ascending: number of the window.
    first
        (n_windows + 1,) int64: window w has items ``first[w]:first[w + 1]``.
    bases, residues
        Token ids of each item's frame and of its peptide, special tokens included.
    """

    window: IntArray
    first: IntArray
    bases: list[IntArray]
    residues: list[IntArray]


def cut_items(windows: Sequence[bytes], tokeniser: BpeTokeniser) -> Items:
    """Find the stop-free frames of every window and tokenise them."""
    lengths = np.array([len(window) for window in windows], np.int64)
    ends = np.cumsum(lengths)
    code = genetic_code(GENETIC_CODE)
    frames = open_frames(b"".join(windows), ends - lengths, ends, code)
    bases = [
        _frame(windows[w], int(frame), int(residues))
        for w, frame, residues in zip(frames.window, frames.frame, frames.residues, strict=True)
    ]
    return Items(
        window=frames.window,
        first=np.searchsorted(frames.window, np.arange(len(windows) + 1)),
        bases=tokeniser(bases),
        residues=tokenise_residues([peptide(frame, code) for frame in bases]),
    )


def _frame(window: bytes, frame: int, residues: int) -> bytes:
    strand = window if frame < 3 else reverse_complement(window)
    return strand[frame % 3 :][: 3 * residues + 1]

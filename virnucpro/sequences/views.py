"""The views of rows, cut out of all records' bases: what encoders get."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from virnucpro.sequences.columns import Column
from virnucpro.sequences.genetic_codes import GeneticCode
from virnucpro.sequences.translation import residues_by_codon, reverse_complement
from virnucpro.sequences.windows import IntArray

__all__ = ["FrameLocations", "frame_bases", "frame_peptides", "whole_sequences"]


@dataclass(frozen=True, slots=True)
class FrameLocations:
    """Where some rows stand in the bases of all records.

    Attributes
    ----------
    first
        ``(n,)`` int64: first base of the row's window.
    span
        ``(n,)`` integers: bases of the window.
    frame
        ``(n,)`` uint8, 0 to 5.
    length
        ``(n,)`` integers: residues.
    """

    first: IntArray
    span: npt.NDArray[np.integer]
    frame: npt.NDArray[np.uint8]
    length: npt.NDArray[np.integer]


def frame_bases(bases: Column, places: FrameLocations) -> list[bytes]:
    """Cut out frames' bases: three a residue and one more where there is one, on their strand."""
    to_the_end = places.span - places.frame % 3
    return _cut_out(bases, places, np.minimum(3 * places.length + 1, to_the_end))


def frame_peptides(bases: Column, places: FrameLocations, code: GeneticCode) -> list[bytes]:
    """Translate frames to the end of their windows; codons of unknown letters are dropped."""
    codons = (places.span - places.frame % 3) // 3
    joined = residues_by_codon(b"".join(_cut_out(bases, places, 3 * codons)), code)
    ends = np.cumsum(codons, dtype=np.int64)
    spans = zip((ends - codons).tolist(), ends.tolist(), strict=True)
    return [joined[low:high].replace(b"-", b"") for low, high in spans]


def whole_sequences(bases: Column, places: FrameLocations) -> list[bytes]:
    """Cut out whole windows."""
    return _cut_out(bases, places, places.span)


def _cut_out(
    bases: Column, places: FrameLocations, letters: npt.NDArray[np.integer]
) -> list[bytes]:
    """Cut so many letters out, from the frame's start on its own strand."""
    offset = (places.frame % 3).astype(np.int64)
    forward = places.frame < 3
    from_the_end = places.first + places.span - offset - letters
    low = np.where(forward, places.first + offset, from_the_end)
    spans = zip(low.tolist(), (low + letters).tolist(), forward.tolist(), strict=True)
    return [
        bases.read(a, b) if onward else reverse_complement(bases.read(a, b))
        for a, b, onward in spans
    ]

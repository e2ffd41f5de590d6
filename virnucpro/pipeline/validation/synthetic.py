"""Sequences out of nothing, the same each time: for measuring and comparing without data."""

import re
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from virnucpro.encoders.base import View
from virnucpro.errors import UsageError
from virnucpro.sequences.translation import genetic_code, peptide
from virnucpro.sequences.windows import tile

__all__ = ["SIX_FRAME", "SyntheticItems", "range_of", "residue_counts", "synthetic_items"]

SIX_FRAME: Final = "six-frame"
"""Lengths of the frames of 500-base windows, published tiling, of records of 60 to 5,000 bases."""

_WINDOW: Final = 500
_RECORD: Final = (60, 5_000)
_LONGEST: Final = 5_000
"""Residues. Encoders were trained on a fifth, and attention to many more takes all memory."""
_RANGE: Final = re.compile(r"([0-9]{1,9})(?:-([0-9]{1,9}))?")
_STOPS: Final = {"TAA", "TAG", "TGA"}
_CODONS: Final = np.array(
    [
        list(codon.encode())
        for codon in (a + b + c for a in "ACGT" for b in "ACGT" for c in "ACGT")
        if codon not in _STOPS
    ],
    np.uint8,
)


@dataclass(frozen=True, slots=True)
class SyntheticItems:
    """Items as both kinds of encoders read them.

    Attributes
    ----------
    bases
        Stop-free codons, and one base more, as the published tool takes it.
    residues
        The same, translated.
    """

    bases: tuple[bytes, ...]
    residues: tuple[bytes, ...]

    def of(self, view: View) -> tuple[bytes, ...]:
        """Give the sequences of one view."""
        return self.bases if view == "nucleotide" else self.residues


def synthetic_items(n: int, lengths: str, seed: int = 1) -> SyntheticItems:
    """Draw `n` items.

    Parameters
    ----------
    lengths
        ``six-frame``, or residues: ``N`` or ``A-B``.
    seed
        The same seed gives the same items.

    Raises
    ------
    UsageError
        When `lengths` is none of these.
    """
    dice = np.random.default_rng(seed)
    code = genetic_code(1)
    bases, residues = [], []
    for count in residue_counts(n, lengths, dice).tolist():
        codons = dice.choice(_CODONS, count).tobytes()
        bases.append(codons + b"A")
        residues.append(peptide(codons, code))
    return SyntheticItems(tuple(bases), tuple(residues))


def residue_counts(n: int, lengths: str, dice: np.random.Generator) -> npt.NDArray[np.int64]:
    """Draw the number of residues of each of `n` items: (n,) int64.

    See `synthetic_items` for `lengths`.

    Raises
    ------
    UsageError
        When `lengths` makes no sense.
    """
    bounds = range_of(lengths)
    if bounds is None:
        return _six_frame(n, dice)
    least, most = bounds
    return dice.integers(least, most, n, endpoint=True)


def range_of(lengths: str) -> tuple[int, int] | None:
    """Read least and most residues; None where the lengths are those of frames.

    Raises
    ------
    UsageError
        When `lengths` makes no sense.
    """
    if lengths == SIX_FRAME:
        return None
    match = _RANGE.fullmatch(lengths)
    least, most = (int(match[1]), int(match[2] or match[1])) if match else (0, 0)
    if not 1 <= least <= most <= _LONGEST:
        raise UsageError(
            f"lengths {lengths[:40]!r} make no sense: give {SIX_FRAME}, a number of residues up to "
            f"{_LONGEST:,}, or a range such as 20-400."
        )
    return least, most


def _six_frame(n: int, dice: np.random.Generator) -> npt.NDArray[np.int64]:
    """Cut records of all sizes into windows, and take one frame of each."""
    counts: list[int] = []
    low, high = np.log(_RECORD)
    while len(counts) < n:
        starts, ends = tile(int(np.exp(dice.uniform(low, high))), _WINDOW, "published")
        counts += ((ends - starts - dice.integers(0, 3, len(starts))) // 3).tolist()
    return np.array(counts[:n], np.int64)

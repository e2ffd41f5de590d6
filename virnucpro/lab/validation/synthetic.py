"""Generate synthetic sequences for measurements; equal seeds give equal sequences."""

import re
from itertools import product
from typing import Final

import numpy as np

from virnucpro.encoders.base import View
from virnucpro.errors import UsageError
from virnucpro.sequences.translation import genetic_code, peptide
from virnucpro.sequences.windows import tile

SIX_FRAME: Final = "six-frame"
"""Name of a length distribution, as in a real run.

These are the lengths of reading frames of 500-base windows (published tiling) of records of 60 to
5,000 bases.
"""

_WINDOW: Final = 500
_RECORD: Final = (60, 5_000)
_LONGEST: Final = 5_000
"""Maximum length in residues.

Encoders were trained with a fifth of this length. Attention memory grows with its square.
"""
_RANGE: Final = re.compile(r"([0-9]{1,9})(?:-([0-9]{1,9}))?")
_STOPS: Final = {b"TAA", b"TAG", b"TGA"}
_CODONS: Final = np.array(
    [codon for codon in product(b"ACGT", repeat=3) if bytes(codon) not in _STOPS], np.uint8
)


def synthetic_items(n: int, lengths: str, seed: int = 1) -> dict[View, list[bytes]]:
    """Return the bases and the peptides of `n` random items, as lists for the two views.

    The bases of an item are random codons without stop codons, plus one base. The peptide of the
    item is the translation of these codons.

    Parameters
    ----------
    lengths
        Lengths of the peptides: a number of residues ``N``, a range ``A-B``, or ``six-frame`` for
        the lengths of reading frames in windows of random records.
    seed
        Seed of the random generator.

    Raises
    ------
    UsageError
        If `lengths` is invalid.
    """
    dice = np.random.default_rng(seed)
    bounds = parse_lengths(lengths)
    if bounds is None:
        counts = _six_frame(n, dice)
    else:
        counts = dice.integers(*bounds, n, endpoint=True).tolist()
    codons, code = [dice.choice(_CODONS, count).tobytes() for count in counts], genetic_code(1)
    return {
        "nucleotide": [sequence + b"A" for sequence in codons],
        "protein": [peptide(sequence, code) for sequence in codons],
    }


def parse_lengths(lengths: str) -> tuple[int, int] | None:
    """Return the minimum and maximum peptide length in residues; None for ``six-frame``.

    Raises
    ------
    UsageError
        If `lengths` is invalid.
    """
    if lengths == SIX_FRAME:
        return None
    match = _RANGE.fullmatch(lengths)
    least, most = (int(match[1]), int(match[2] or match[1])) if match else (0, 0)
    if not 1 <= least <= most <= _LONGEST:
        raise UsageError(
            f"invalid lengths {lengths[:40]!r}: give {SIX_FRAME}, a number of residues up to "
            f"{_LONGEST:,}, or a range such as 20-400."
        )
    return least, most


def _six_frame(n: int, dice: np.random.Generator) -> list[int]:
    """Return random lengths (in residues) of `n` peptides.

    Records of random length are cut into windows. Each window gives one length: the length of one
    random reading frame.
    """
    counts: list[int] = []
    low, high = np.log(_RECORD)
    while len(counts) < n:
        starts, ends = tile(int(np.exp(dice.uniform(low, high))), _WINDOW, "published")
        counts += ((ends - starts - dice.integers(0, 3, len(starts))) // 3).tolist()
    return counts[:n]

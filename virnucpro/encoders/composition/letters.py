"""Windows as one array of letters, with the codon that starts at each position.

Windows are joined with three unknown letters before, between and after them. So no codon and no
word crosses from one window to the next, and every frame of every window ends with a codon that is
not known. The letters of a known codon have the numbers of
`virnucpro.sequences.translation.CODON_LETTERS`.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from virnucpro.arrays import ByteArray, IntArray
from virnucpro.sequences.translation import CODON_LETTERS

GAP = 3
"""Unknown letters between two windows: one codon of each frame starts there."""

UNKNOWN_CODON = 64
"""Codons from this number on have a letter other than A, C, G, T."""

_UNKNOWN = 4
NUMBERS = bytes(
    CODON_LETTERS.index(letter) if letter in CODON_LETTERS else _UNKNOWN
    for letter in bytes(range(256)).upper()
)
"""Number of each letter in either case; 4 for others."""


@dataclass(frozen=True, slots=True)
class Letters:
    """Several windows, joined.

    Attributes
    ----------
    starts
        ``(n_windows,)`` int64: position of the first letter of each window.
    lengths
        ``(n_windows,)`` int64, bases.
    window
        ``(n,)`` int64: number of the window at each position. The gap after a window has its
        number, the first gap has number 0.
    numbers
        ``(n,)`` uint8: 0 to 3; an unknown letter has any of them.
    unknown
        ``(n,)`` uint8: 1 for letters other than A, C, G, T, else 0.
    codons
        ``(n - 2,)`` uint8: number of the codon that starts here, or `UNKNOWN_CODON` and more.
    """

    starts: IntArray
    lengths: IntArray
    window: IntArray
    numbers: ByteArray
    unknown: ByteArray
    codons: ByteArray


def codon_number(codon: str) -> int:
    """Return the number of a codon of A, C, G, T."""
    first, second, third = (CODON_LETTERS.index(letter) for letter in codon.encode())
    return first << 4 | second << 2 | third


def join(windows: Sequence[bytes]) -> Letters:
    """Join windows; their number is at least one."""
    gap = b"N" * GAP
    joined = gap + gap.join(windows) + gap
    letters = np.frombuffer(joined.translate(NUMBERS), dtype=np.uint8)
    lengths = np.fromiter(map(len, windows), np.int64, len(windows))
    starts = np.cumsum(lengths + GAP) - lengths
    spans = lengths + GAP
    spans[0] += GAP
    unknown = letters >> np.uint8(2)
    numbers = letters & np.uint8(3)
    codons = numbers[:-2] << np.uint8(4)
    codons |= numbers[1:-1] << np.uint8(2)
    codons |= numbers[2:]
    codons |= (unknown[:-2] | unknown[1:-1] | unknown[2:]) << np.uint8(6)
    window = np.repeat(np.arange(len(windows)), spans)
    return Letters(starts, lengths, window, numbers, unknown, codons)

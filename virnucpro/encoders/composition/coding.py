"""Codons and residues of the best stretch of each window, in reading direction."""

from dataclasses import dataclass
from functools import lru_cache
from typing import Final

import numpy as np
from numpy.typing import NDArray

from virnucpro.encoders.composition.letters import UNKNOWN_CODON, Letters
from virnucpro.encoders.composition.stretches import Stretches, opposite
from virnucpro.sequences.translation import CODON_LETTERS, GeneticCode

__all__ = [
    "AMINO_ACIDS",
    "ENDS",
    "LAGS",
    "PROPERTIES",
    "Coding",
    "count_borders",
    "count_columns",
    "ends",
    "first_start",
    "properties",
    "read_stretches",
    "synonyms",
]

IntArray = NDArray[np.int64]
FloatArray = NDArray[np.float64]

AMINO_ACIDS: Final = b"ACDEFGHIKLMNPQRSTVWY"

PROPERTIES: Final = {
    "hydropathy": (18, 25, -35, -35, 28, -4, -32, 45, -39, 38, 19, -35, -16, -35, -45, -8, -7, 42,
                   -9, -13),
    "charge": (0, 0, -10, -10, 0, 0, 0, 0, 10, 0, 0, 0, 0, 0, 10, 0, 0, 0, 0, 0),
    "volume": (-51, -32, -29, -2, 50, -80, 13, 27, 29, 27, 23, -26, -27, 4, 33, -51, -24, 0, 88,
               54),
}  # fmt: skip
"""Properties of residues in the order of `AMINO_ACIDS`, as integers, so that sums are exact.

Hydropathy times ten: Kyte and Doolittle, J. Mol. Biol. 157, 105 (1982). Volume in cubic angstroms
less 140: Zamyatnin, Prog. Biophys. Mol. Biol. 24, 107 (1972).
"""

LAGS: Final = range(1, 8)
"""Distances between residues: a helix has 3.6 residues a turn."""

ENDS: Final = ("TAA", "TAG", "TGA")
_START: Final = "ATG"


@dataclass(frozen=True, slots=True)
class Coding:
    """The codons of all best stretches, one stretch after the other.

    Attributes
    ----------
    n_windows
        Number of windows.
    window
        ``(n,)`` int64: number of the codon's window.
    place
        ``(n,)`` int64: place of the codon in its stretch, from 0.
    codons
        ``(n,)`` int64, 0 to 63.
    residues
        ``(n,)`` int64: place in `AMINO_ACIDS`.
    """

    n_windows: int
    window: IntArray
    place: IntArray
    codons: IntArray
    residues: IntArray


def read_stretches(letters: Letters, stretches: Stretches, code: GeneticCode) -> Coding:
    """Read the best stretch of each window."""
    n_windows = len(stretches.codons)
    firsts = np.cumsum(stretches.codons) - stretches.codons
    window = np.repeat(np.arange(n_windows), stretches.codons)
    place = np.arange(len(window)) - firsts[window]
    steps: IntArray = place * stretches.step[window]
    codons = _codons_at(letters, stretches.step, window, stretches.first[window] + steps)
    return Coding(n_windows, window, place, codons, _residues(code)[codons])


def count_columns(coding: Coding, columns: IntArray, width: int, lag: int = 0) -> IntArray:
    """Count columns for each window.

    With a lag, `columns` has an entry for each pair of codons at this distance; pairs of different
    windows are not counted.
    """
    window = coding.window
    if lag:
        same = window[:-lag] == window[lag:]
        window, columns = window[:-lag][same], columns[same]
    counts = np.bincount(window * width + columns, minlength=coding.n_windows * width)
    return counts.reshape(coding.n_windows, width)


def synonyms(residues: IntArray, code: GeneticCode) -> FloatArray:
    """Return the expected number of each codon if all codons of a residue are equal: (n, 64).

    The entries of stops are 0.
    """
    of_codon = _residues(code)
    coded = np.frombuffer(code, dtype=np.uint8) != ord("*")
    degeneracy = np.bincount(of_codon[coded], minlength=len(AMINO_ACIDS))
    found: FloatArray = coded * residues[:, of_codon] / np.maximum(degeneracy[of_codon], 1)
    return found


def count_borders(coding: Coding) -> IntArray:
    """Count the pairs of a codon's third and the next codon's first letter: (n_windows, 16)."""
    pairs = (coding.codons[:-1] & 3) * 4 + (coding.codons[1:] >> 4)
    return count_columns(coding, pairs, 16, lag=1)


def properties(coding: Coding, counts: IntArray) -> FloatArray:
    """Return mean, variance and autocovariances of each of `PROPERTIES`: (n_windows, 27).

    `counts` is the number of codons of each window.
    """
    columns = []
    some = np.maximum(counts, 1)
    for values in PROPERTIES.values():
        of_residue = np.array(values)[coding.residues]
        mean = _sums(coding, of_residue, 0) / some
        columns += [mean, _sums(coding, of_residue**2, 0) / some - mean**2]
        for lag in LAGS:
            products = of_residue[:-lag] * of_residue[lag:]
            pairs = np.maximum(counts - lag, 1)
            covariance = _sums(coding, products, lag) / pairs - mean**2
            columns.append(np.where(counts > lag, covariance, 0))
    return np.stack(columns, axis=1)


def ends(letters: Letters, stretches: Stretches) -> NDArray[np.bool_]:
    """Return which stop, or none, is before and after the best stretch: (n_windows, 8)."""
    window = np.arange(len(stretches.codons))
    columns = []
    stops = [_number(stop) for stop in ENDS]
    for place in (stretches.codons, -1):
        at = np.clip(stretches.first + place * stretches.step, 0, len(letters.codons) - 1)
        codon = _codons_at(letters, stretches.step, window, at)
        codon[stretches.codons == 0] = UNKNOWN_CODON
        columns += [*(codon == stop for stop in stops), codon >= UNKNOWN_CODON]
    return np.stack(columns, axis=1)


def first_start(coding: Coding, counts: IntArray) -> FloatArray:
    """Return the place of the first ATG, as a share of the stretch; 1 without: (n_windows,)."""
    found = np.ones(coding.n_windows)
    starts = np.flatnonzero(coding.codons == _number(_START))
    window = coding.window[starts]
    first = np.flatnonzero(np.diff(window, prepend=-1))
    found[window[first]] = coding.place[starts[first]] / counts[window[first]]
    return found


def _codons_at(letters: Letters, step: IntArray, window: IntArray, position: IntArray) -> IntArray:
    """Return codons in reading direction; `window` is the number of each position's window."""
    found = letters.codons[position]
    return np.where(step[window] < 0, _opposites()[found], found).astype(np.int64)


def _sums(coding: Coding, values: IntArray, lag: int) -> FloatArray:
    window = coding.window
    if lag:
        same = window[:-lag] == window[lag:]
        window, values = window[:-lag][same], values[same]
    sums = np.bincount(window, values, coding.n_windows)
    return sums.astype(np.float64, copy=False)


def _number(codon: str) -> int:
    first, second, third = (CODON_LETTERS.index(letter) for letter in codon.encode())
    return 16 * first + 4 * second + third


@lru_cache
def _opposites() -> NDArray[np.uint8]:
    found = np.arange(256, dtype=np.uint8)
    found[:UNKNOWN_CODON] = [opposite(codon) for codon in range(UNKNOWN_CODON)]
    return found


@lru_cache
def _residues(code: GeneticCode) -> IntArray:
    """Return the number of each codon's amino acid; stops have 0, but are in no stretch."""
    return np.array([max(AMINO_ACIDS.find(letter), 0) for letter in code], dtype=np.int64)

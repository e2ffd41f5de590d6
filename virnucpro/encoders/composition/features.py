"""Numbers that describe the composition of windows: words, codons, amino acids, open frames.

Most windows have a stretch without a stop that belongs to a gene. The codons, amino acids and
pairs of amino acids of the longest such stretch, and the stops of all frames, separate viral from
other sequences better than words of the whole window do.

All numbers are equal for a window and its reverse complement, up to ties between stretches. They
depend on the window alone: values are computed as integers, then divided one by one.
"""

from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import product

import numpy as np
from numpy.typing import NDArray

from virnucpro.encoders.composition.letters import UNKNOWN_CODON, Letters, join
from virnucpro.encoders.composition.stretches import (
    FRAMES,
    Stretches,
    find_stretches,
    opposite,
)
from virnucpro.sequences.translation import CODON_LETTERS, GeneticCode

__all__ = ["DIM", "NAMES", "features"]

AMINO_ACIDS = b"ACDEFGHIKLMNPQRSTVWY"

_CHUNK_BASES = 1 << 18
"""Windows are processed in chunks of about this size, which fit into a processor's cache."""


def _words(length: int) -> list[str]:
    return ["".join(word) for word in product(CODON_LETTERS.decode(), repeat=length)]


def _canonical(length: int) -> tuple[NDArray[np.uint8], list[str]]:
    """Return the column of each word, and the columns' names: a word and its complement are one."""
    words = _words(length)
    complement = str.maketrans("ACGT", "TGCA")
    chosen = [min(word, word.translate(complement)[::-1]) for word in words]
    names = sorted(set(chosen))
    column = {name: i for i, name in enumerate(names)}
    return np.array([column[name] for name in chosen], dtype=np.uint8), names


_COLUMN_OF_4, _NAMES_OF_4 = _canonical(4)
_COLUMN_OF_3, _NAMES_OF_3 = _canonical(3)
_CODONS = _words(3)
_PAIRS = [f"{a}{b}" for a, b in product(AMINO_ACIDS.decode(), repeat=2)]

NAMES: tuple[str, ...] = (
    *(f"word {name}" for name in (*_NAMES_OF_4, *_NAMES_OF_3)),
    *(f"codon {name}" for name in _CODONS),
    *(f"residue {chr(letter)}" for letter in AMINO_ACIDS),
    *(f"pair {name}" for name in _PAIRS),
    *(f"open share of frame {frame}" for frame in range(FRAMES)),
    *(f"stop density of frame {frame}" for frame in range(FRAMES)),
    "codons of the longest stretch",
)
"""Names of the features. Frame 0 has the longest stretch; see `stretches` for the others."""

DIM = len(NAMES)
"""Number of features."""


def features(windows: Sequence[bytes], code: GeneticCode) -> NDArray[np.float32]:
    """Return the features of windows.

    Parameters
    ----------
    windows
        Upper-case bases, of any lengths. Words and codons with a letter other than A, C, G, T are
        not counted.
    code
        The genetic code.

    Returns
    -------
    NDArray[np.float32]
        ``(n_windows, DIM)``: shares of all counted words, codons, residues or pairs, 0 where none
        is counted; the last column is a number of codons, divided by 100.
    """
    found = np.zeros((len(windows), DIM), dtype=np.float32)
    for start, end in _chunks(windows):
        letters = join(windows[start:end])
        _fill(found[start:end], letters, find_stretches(letters, code), code)
    return found


def _chunks(windows: Sequence[bytes]) -> Iterator[tuple[int, int]]:
    start = bases = 0
    for end, window in enumerate(windows):
        if end > start and bases + len(window) > _CHUNK_BASES:
            yield start, end
            start, bases = end, 0
        bases += len(window)
    if start < len(windows):
        yield start, len(windows)


def _fill(
    found: NDArray[np.float32], letters: Letters, stretches: Stretches, code: GeneticCode
) -> None:
    codons, residues, pairs = _stretch_counts(letters, stretches, code)
    frames = np.maximum(stretches.known, 1).astype(np.float32)
    blocks = (
        _shares(_words_of_4(letters)),
        _shares(_words_of_3(letters)),
        _shares(codons),
        _shares(residues),
        _shares(pairs),
        stretches.longest / frames,
        stretches.stops / frames,
        stretches.codons[:, None].astype(np.float32) / np.float32(100),
    )
    start = 0
    for block in blocks:
        found[:, start : start + block.shape[1]] = block
        start += block.shape[1]


def _shares(counts: NDArray[np.int64]) -> NDArray[np.float32]:
    totals = np.maximum(counts.sum(axis=1, keepdims=True), 1)
    shares: NDArray[np.float32] = counts.astype(np.float32) / totals.astype(np.float32)
    return shares


def _words_of_4(letters: Letters) -> NDArray[np.int64]:
    # A known word of four letters is two known codons, one after the other.
    words = letters.codons[:-1] << np.uint8(2)
    words |= letters.numbers[3:]
    columns = _COLUMN_OF_4[words]
    columns[(letters.codons[:-1] | letters.codons[1:]) >= UNKNOWN_CODON] = len(_NAMES_OF_4)
    return _count(letters.window[: len(columns)], columns, letters, len(_NAMES_OF_4))


def _words_of_3(letters: Letters) -> NDArray[np.int64]:
    columns = _columns_of_codons()[letters.codons]
    return _count(letters.window[: len(columns)], columns, letters, len(_NAMES_OF_3))


def _count(
    window: NDArray[np.int64], columns: NDArray[np.uint8], letters: Letters, width: int
) -> NDArray[np.int64]:
    """Count columns for each window; column `width` is for what is not counted."""
    n_windows = len(letters.starts)
    cells = window * (width + 1)
    cells += columns
    counts = np.bincount(cells, minlength=n_windows * (width + 1))
    return counts.reshape(n_windows, width + 1)[:, :width]


@lru_cache
def _columns_of_codons() -> NDArray[np.uint8]:
    columns = np.full(256, len(_NAMES_OF_3), dtype=np.uint8)
    columns[:UNKNOWN_CODON] = _COLUMN_OF_3
    return columns


def _stretch_counts(
    letters: Letters, stretches: Stretches, code: GeneticCode
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Count codons, residues and pairs of neighbouring residues of the best stretches."""
    n_windows = len(stretches.codons)
    firsts = np.cumsum(stretches.codons) - stretches.codons
    window = np.repeat(np.arange(n_windows), stretches.codons)
    place = np.arange(len(window)) - firsts[window]
    codons = letters.codons[stretches.first[window] + place * stretches.step[window]]
    on_reverse = stretches.step[window] < 0
    codons = np.where(on_reverse, _opposites()[codons], codons).astype(np.int64)
    residues = _residues(code)[codons]
    n_residues = len(AMINO_ACIDS)
    pairs = residues[:-1] * n_residues + residues[1:]
    same = window[:-1] == window[1:]
    return (
        _tally(window, codons, n_windows, UNKNOWN_CODON),
        _tally(window, residues, n_windows, n_residues),
        _tally(window[:-1][same], pairs[same], n_windows, n_residues**2),
    )


def _tally(
    window: NDArray[np.int64], columns: NDArray[np.int64], n_windows: int, width: int
) -> NDArray[np.int64]:
    counts = np.bincount(window * width + columns, minlength=n_windows * width)
    return counts.reshape(n_windows, width)


@lru_cache
def _opposites() -> NDArray[np.uint8]:
    return np.array([opposite(codon) for codon in range(UNKNOWN_CODON)], dtype=np.uint8)


@lru_cache
def _residues(code: GeneticCode) -> NDArray[np.int64]:
    """Return the number of each codon's amino acid; stops have 0, but are in no stretch."""
    return np.array([max(AMINO_ACIDS.find(letter), 0) for letter in code], dtype=np.int64)

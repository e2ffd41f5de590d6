"""Words of windows: counts on both strands, bases in the direction of the best stretch."""

from functools import lru_cache
from itertools import product

import numpy as np
from numpy.typing import NDArray

from virnucpro.encoders.composition.letters import UNKNOWN_CODON, Letters
from virnucpro.sequences.translation import CODON_LETTERS

__all__ = ["NAMES_OF_3", "NAMES_OF_4", "all_words", "count_bases", "words_of_3", "words_of_4"]

IntArray = NDArray[np.int64]


def all_words(length: int) -> list[str]:
    """Return all words of a length, in the order of their numbers."""
    return ["".join(word) for word in product(CODON_LETTERS.decode(), repeat=length)]


def _canonical(length: int) -> tuple[NDArray[np.uint8], list[str]]:
    """Return the column of each word, and the columns' names: a word and its complement are one."""
    complement = str.maketrans("ACGT", "TGCA")
    chosen = [min(word, word.translate(complement)[::-1]) for word in all_words(length)]
    names = sorted(set(chosen))
    column = {name: i for i, name in enumerate(names)}
    return np.array([column[name] for name in chosen], dtype=np.uint8), names


_COLUMN_OF_4, NAMES_OF_4 = _canonical(4)
_COLUMN_OF_3, NAMES_OF_3 = _canonical(3)


def words_of_4(letters: Letters) -> IntArray:
    """Count the words of four known letters of each window: (n_windows, 136)."""
    # A known word of four letters is two known codons, one after the other.
    words = letters.codons[:-1] << np.uint8(2)
    words |= letters.numbers[3:]
    columns = _COLUMN_OF_4[words]
    columns[(letters.codons[:-1] | letters.codons[1:]) >= UNKNOWN_CODON] = len(NAMES_OF_4)
    return _count(columns, letters, len(NAMES_OF_4))


def words_of_3(letters: Letters) -> IntArray:
    """Count the words of three known letters of each window: (n_windows, 32)."""
    return _count(_columns_of_codons()[letters.codons], letters, len(NAMES_OF_3))


def count_bases(letters: Letters, step: IntArray) -> IntArray:
    """Count known letters in the direction of the best stretch: (n_windows, 4)."""
    given = _count(np.where(letters.unknown, np.uint8(4), letters.numbers), letters, 4)
    return np.where(step[:, None] < 0, given[:, [2, 3, 0, 1]], given)


def _count(columns: NDArray[np.uint8], letters: Letters, width: int) -> IntArray:
    """Count columns for each window; column `width` is for what is not counted."""
    n_windows = len(letters.starts)
    cells = letters.window[: len(columns)] * (width + 1)
    cells += columns
    counts = np.bincount(cells, minlength=n_windows * (width + 1))
    return counts.reshape(n_windows, width + 1)[:, :width]


@lru_cache
def _columns_of_codons() -> NDArray[np.uint8]:
    columns = np.full(256, len(NAMES_OF_3), dtype=np.uint8)
    columns[:UNKNOWN_CODON] = _COLUMN_OF_3
    return columns

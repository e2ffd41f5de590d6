"""Numbers that describe the composition of windows: words, codons, amino acids, open frames.

Most windows have a stretch without a stop that belongs to a gene. Its codons and amino acids, and
the stops of all frames, separate viral from other sequences better than words of the whole window.

All numbers are equal for a window and its reverse complement, up to ties between stretches. They
depend on the window alone: sums are sums of integers, then every number is computed on its own by
operations that IEEE 754 defines exactly.
"""

from collections.abc import Iterator, Sequence
from itertools import product
from typing import Final

import numpy as np
from numpy.typing import NDArray

from virnucpro.encoders.composition.coding import (
    AMINO_ACIDS,
    ENDS,
    LAGS,
    PROPERTIES,
    count_borders,
    count_columns,
    ends,
    first_start,
    properties,
    read_stretches,
    synonyms,
)
from virnucpro.encoders.composition.letters import UNKNOWN_CODON, Letters, join
from virnucpro.encoders.composition.stretches import FRAMES, Stretches, find_stretches
from virnucpro.encoders.composition.words import (
    NAMES_OF_3,
    NAMES_OF_4,
    all_words,
    count_bases,
    words_of_3,
    words_of_4,
)
from virnucpro.sequences.translation import CODON_LETTERS, GeneticCode

__all__ = ["DIM", "NAMES", "features"]

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]

_CHUNK_BASES = 1 << 18
"""Windows are processed in chunks of about this size, which fit into a processor's cache."""

_CODONS = all_words(3)
_BASES = all_words(1)
_RESIDUES = AMINO_ACIDS.decode()
_BORDERS = all_words(2)
_ENDS = (*ENDS, "another letter or the end")

NAMES: Final[tuple[str, ...]] = (
    *(f"word {name}" for name in (*NAMES_OF_4, *NAMES_OF_3)),
    *(f"codon {name}" for name in _CODONS),
    *(f"residue {letter}" for letter in _RESIDUES),
    *(f"pair {first}{second}" for first, second in product(_RESIDUES, repeat=2)),
    *(f"open share of frame {frame}" for frame in range(FRAMES)),
    *(f"stop density of frame {frame}" for frame in range(FRAMES)),
    *(f"codons of the longest stretch of frame {frame}" for frame in range(FRAMES)),
    *(f"stops of frame {frame}" for frame in range(FRAMES)),
    *(f"codon {name} among its synonyms" for name in _CODONS),
    *(f"codon {name} against its bases" for name in _CODONS),
    *(f"base {name} at place {place} of codons" for place in (1, 2, 3) for name in _BASES),
    *(f"base {name} at place {place} less window" for place in (1, 2, 3) for name in _BASES),
    *(f"border {name}" for name in _BORDERS),
    *(f"border {name} against its bases" for name in _BORDERS),
    "skew G C",
    "skew A T",
    *(
        f"{name} {figure}"
        for name in PROPERTIES
        for figure in ("mean", "variance", *(f"lag {lag}" for lag in LAGS))
    ),
    "repetition of words",
    "most frequent word",
    "root of counted words",
    "repetition of codons",
    "root of codons",
    *(f"{name} {side} the stretch" for side in ("after", "before") for name in _ENDS),
    "first ATG",
)
"""Names of the features. Frame 0 has the best stretch; see `stretches` for the others."""

DIM: Final = len(NAMES)
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
        ``(n_windows, DIM)``, all finite. Most are shares: of all counted words, codons, residues
        or pairs. "Against" and "among" are ``(n - e) / (n + e + 2)`` of a number and its expected
        value. A share of nothing is 0.
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
    words = words_of_4(letters)
    coding = read_stretches(letters, stretches, code)
    codons = count_columns(coding, coding.codons, UNKNOWN_CODON)
    residues = count_columns(coding, coding.residues, len(AMINO_ACIDS))
    pairs = coding.residues[:-1] * len(AMINO_ACIDS) + coding.residues[1:]
    bases = count_bases(letters, stretches.step)
    blocks = (
        _shares(words),
        _shares(words_of_3(letters)),
        _shares(codons),
        _shares(residues),
        _shares(count_columns(coding, pairs, len(AMINO_ACIDS) ** 2, lag=1)),
        *_frames(stretches),
        _contrast(codons, synonyms(residues, code)),
        *_codon_bases(codons, bases, stretches.codons),
        *_borders(count_borders(coding)),
        *_skews(bases),
        properties(coding, stretches.codons) / 100,
        *_repetition(words),
        *_repetition(codons)[::2],
        ends(letters, stretches),
        first_start(coding, stretches.codons)[:, None],
    )
    start = 0
    for block in blocks:
        found[:, start : start + block.shape[1]] = block
        start += block.shape[1]


def _shares(counts: IntArray) -> FloatArray:
    return _ratio(counts, counts.sum(axis=1, keepdims=True))


def _ratio(counts: IntArray, totals: IntArray) -> FloatArray:
    found: FloatArray = counts / np.maximum(totals, 1)
    return found


def _contrast(counts: IntArray, expected: FloatArray) -> FloatArray:
    """Return the hyperbolic tangent of half the log of ``(n + 1) / (e + 1)``, without a log."""
    return (counts - expected) / (counts + expected + 2)


def _frames(stretches: Stretches) -> list[FloatArray]:
    return [
        _ratio(stretches.longest, stretches.known),
        _ratio(stretches.stops, stretches.known),
        stretches.longest / 100,
        stretches.stops / 10,
    ]


def _codon_bases(codons: IntArray, bases: IntArray, n_codons: IntArray) -> list[FloatArray]:
    """Return codons against the bases of the window, then bases at each place of a codon."""
    share = _shares(bases)
    of_codon = share[:, :, None, None] * share[:, None, :, None] * share[:, None, None, :]
    expected = of_codon.reshape(len(codons), UNKNOWN_CODON) * n_codons[:, None]
    cube = codons.reshape(-1, 4, 4, 4)
    places = [_shares(cube.sum(axis=axes)) for axes in ((2, 3), (1, 3), (1, 2))]
    return [_contrast(codons, expected), *places, *(place - share for place in places)]


def _borders(counts: IntArray) -> list[FloatArray]:
    square = counts.reshape(-1, 4, 4)
    product = square.sum(axis=2)[:, :, None] * square.sum(axis=1)[:, None, :]
    expected = _ratio(product.reshape(counts.shape), counts.sum(axis=1, keepdims=True))
    return [_shares(counts), _contrast(counts, expected)]


def _skews(bases: IntArray) -> list[FloatArray]:
    t, c, a, g = (bases[:, [CODON_LETTERS.index(letter)]] for letter in b"TCAG")
    return [(g - c) / (g + c + 1), (a - t) / (a + t + 1)]


def _repetition(counts: IntArray) -> list[FloatArray]:
    """Return the chance that two draws are equal, the largest share, the root of the total."""
    total = counts.sum(axis=1, keepdims=True)
    squares = (counts * counts).sum(axis=1, keepdims=True)
    largest = counts.max(axis=1, keepdims=True)
    return [_ratio(squares, total * total), _ratio(largest, total), np.sqrt(total) / 10]

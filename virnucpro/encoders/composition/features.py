"""Numbers that describe the composition of windows: words, codons, amino acids, open frames.

Most windows have a stretch without a stop that belongs to a gene. Its codons and amino acids, and
the stops of all frames, separate viral from other sequences better than words of the whole window.

All numbers are equal for a window and its reverse complement, up to ties between stretches. They
depend on the window alone: sums are sums of integers, then every number is computed on its own by
operations that IEEE 754 defines exactly.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import product
from typing import Final

import numpy as np

from virnucpro.arrays import BoolArray, ByteArray, Float32Array, FloatArray, IntArray, table
from virnucpro.compiled import CompositionTables, filled, library
from virnucpro.encoders.composition.letters import (
    NUMBERS,
    UNKNOWN_CODON,
    Letters,
    codon_number,
    join,
)
from virnucpro.encoders.composition.stretches import (
    FRAMES,
    OPPOSITE,
    Stretches,
    codon_weights,
    find_stretches,
)
from virnucpro.sequences.translation import CODON_LETTERS, GeneticCode

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
    return Coding(n_windows, window, place, codons, residues_of(code)[codons])


def count_columns(coding: Coding, columns: IntArray, width: int, lag: int = 0) -> IntArray:
    """Count columns for each window.

    With a lag, `columns` has an entry for each pair of codons at this distance; pairs of different
    windows are not counted.
    """
    window = coding.window
    if lag:
        same = window[:-lag] == window[lag:]
        window, columns = window[:-lag][same], columns[same]
    return table(window, columns, coding.n_windows, width)


def synonyms(residues: IntArray, code: GeneticCode) -> FloatArray:
    """Return the expected number of each codon if all codons of a residue are equal: (n, 64).

    The entries of stops are 0.
    """
    of_codon = residues_of(code)
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
    afters = np.cumsum(counts)
    starts = afters - counts
    for values in PROPERTIES.values():
        of_residue = np.array(values)[coding.residues]
        mean = _sums(of_residue, starts, afters) / some
        columns += [mean, _sums(of_residue**2, starts, afters) / some - mean**2]
        for lag in LAGS:
            products = of_residue[:-lag] * of_residue[lag:]
            pairs = np.maximum(counts - lag, 1)
            sums = _sums(products, starts, np.maximum(afters - lag, starts))
            columns.append(np.where(counts > lag, sums / pairs - mean**2, 0))
    return np.stack(columns, axis=1)


def ends(letters: Letters, stretches: Stretches) -> BoolArray:
    """Return which stop, or none, is before and after the best stretch: (n_windows, 8)."""
    window = np.arange(len(stretches.codons))
    columns = []
    stops = [codon_number(stop) for stop in ENDS]
    for place in (stretches.codons, -1):
        at = np.clip(stretches.first + place * stretches.step, 0, len(letters.codons) - 1)
        codon = _codons_at(letters, stretches.step, window, at)
        codon[stretches.codons == 0] = UNKNOWN_CODON
        columns += [*(codon == stop for stop in stops), codon >= UNKNOWN_CODON]
    return np.stack(columns, axis=1)


def first_start(coding: Coding, counts: IntArray) -> FloatArray:
    """Return the place of the first ATG, as a share of the stretch; 1 without: (n_windows,)."""
    found = np.ones(coding.n_windows)
    starts = np.flatnonzero(coding.codons == codon_number(_START))
    window = coding.window[starts]
    first = np.flatnonzero(np.diff(window, prepend=-1))
    found[window[first]] = coding.place[starts[first]] / counts[window[first]]
    return found


def _codons_at(letters: Letters, step: IntArray, window: IntArray, position: IntArray) -> IntArray:
    """Return codons in reading direction; `window` is the number of each position's window."""
    found = letters.codons[position]
    return np.where(step[window] < 0, OPPOSITE[found], found).astype(np.int64)


def _sums(values: IntArray, starts: IntArray, ends: IntArray) -> IntArray:
    """Return the exact sum of ``values[start:end]`` of each window, by differences of one sum."""
    until = np.zeros(len(values) + 1, np.int64)
    np.cumsum(values, out=until[1:])
    last = len(values)
    return until[np.minimum(ends, last)] - until[np.minimum(starts, last)]


@lru_cache
def residues_of(code: GeneticCode) -> IntArray:
    """Return the number of each codon's amino acid; stops have 0, but are in no stretch."""
    return np.array([max(AMINO_ACIDS.find(letter), 0) for letter in code], dtype=np.int64)


def all_words(length: int) -> list[str]:
    """Return all words of a length, in the order of their numbers."""
    return ["".join(word) for word in product(CODON_LETTERS.decode(), repeat=length)]


def _canonical(length: int) -> tuple[ByteArray, list[str]]:
    """Return the column of each word, and the columns' names: a word and its complement are one."""
    complement = str.maketrans("ACGT", "TGCA")
    chosen = [min(word, word.translate(complement)[::-1]) for word in all_words(length)]
    names = sorted(set(chosen))
    column = {name: i for i, name in enumerate(names)}
    return np.array([column[name] for name in chosen], dtype=np.uint8), names


COLUMN_OF_4, NAMES_OF_4 = _canonical(4)
_COLUMN_OF_3, NAMES_OF_3 = _canonical(3)
_COLUMN_OF_CODON = np.pad(_COLUMN_OF_3, (0, 192), constant_values=len(NAMES_OF_3))


def words_of_4(letters: Letters) -> IntArray:
    """Count the words of four known letters of each window: (n_windows, 136)."""
    # A known word of four letters is two known codons, one after the other.
    words = letters.codons[:-1] << np.uint8(2)
    words |= letters.numbers[3:]
    columns = COLUMN_OF_4[words]
    columns[(letters.codons[:-1] | letters.codons[1:]) >= UNKNOWN_CODON] = len(NAMES_OF_4)
    return _count(columns, letters, len(NAMES_OF_4))


def words_of_3(letters: Letters) -> IntArray:
    """Count the words of three known letters of each window: (n_windows, 32)."""
    return _count(_COLUMN_OF_CODON[letters.codons], letters, len(NAMES_OF_3))


def count_bases(letters: Letters, step: IntArray) -> IntArray:
    """Count known letters in the direction of the best stretch: (n_windows, 4)."""
    given = _count(np.where(letters.unknown, np.uint8(4), letters.numbers), letters, 4)
    return np.where(step[:, None] < 0, given[:, [2, 3, 0, 1]], given)


def _count(columns: ByteArray, letters: Letters, width: int) -> IntArray:
    """Count columns for each window; column `width` is for what is not counted."""
    n_windows = len(letters.starts)
    cells = letters.window[: len(columns)] * (width + 1)
    cells += columns
    counts = np.bincount(cells, minlength=n_windows * (width + 1))
    return counts.reshape(n_windows, width + 1)[:, :width]


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


def features(windows: Sequence[bytes], code: GeneticCode) -> Float32Array:
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
    Float32Array
        ``(n_windows, DIM)``, all finite. Most are shares: of all counted words, codons, residues
        or pairs. "Against" and "among" are ``(n - e) / (n + e + 2)`` of a number and its expected
        value. A share of nothing is 0.
    """
    found = np.zeros((len(windows), DIM), dtype=np.float32)
    if (compiled := library()) is not None:
        lengths = np.fromiter(map(len, windows), np.int64, len(windows))
        tables, bases = compiled_tables(code), b"".join(windows)
        if compiled.virnucpro_features(tables, bases, lengths, len(windows), found, DIM):
            raise MemoryError
        return found
    for start, end in _chunks(windows):
        letters = join(windows[start:end])
        _fill(found[start:end], letters, find_stretches(letters, code), code)
    return found


@lru_cache
def compiled_tables(code: GeneticCode) -> CompositionTables:
    """Return what the compiled form of `features` looks up."""
    return filled(
        CompositionTables,
        numbers=NUMBERS,
        fours=COLUMN_OF_4,
        threes=_COLUMN_OF_3,
        residues=residues_of(code),
        coded=np.frombuffer(code, np.uint8) != ord("*"),
        stops=np.array([codon_number(stop) for stop in ENDS]),
        start=codon_number(_START),
        weights=np.stack(
            [codon_weights(code, reverse)[:UNKNOWN_CODON] for reverse in (False, True)]
        ),
        properties=np.array(list(PROPERTIES.values())),
    )


def _chunks(windows: Sequence[bytes]) -> Iterator[tuple[int, int]]:
    start = bases = 0
    for end, window in enumerate(windows):
        if end > start and bases + len(window) > _CHUNK_BASES:
            yield start, end
            start, bases = end, 0
        bases += len(window)
    if start < len(windows):
        yield start, len(windows)


def _fill(found: Float32Array, letters: Letters, stretches: Stretches, code: GeneticCode) -> None:
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
    return counts / np.maximum(totals, 1)


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

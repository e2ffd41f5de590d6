"""Protein words of genes: which groups of viruses and hosts have them.

A word is twelve places of a gene's protein under a spaced seed, in an alphabet of eleven letters.
Its key is a hash of 32 bits; one of two words is kept, by the hash. The value of a known word names
the side that has it most often, and how sure that is. Counts of values are sums, as all evidence.
"""

from collections.abc import Sequence
from ctypes import CDLL
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Final

import numpy as np
from numpy.typing import NDArray

from virnucpro.arrays import ByteArray, Int32Array, IntArray, table
from virnucpro.compiled import GeneTables, fill, library
from virnucpro.encoders.composition.features import COLUMN_OF_4
from virnucpro.encoders.composition.letters import NUMBERS
from virnucpro.encoders.genes.evidence import (
    CHARGE,
    DIM,
    HYDROPATHY,
    MOTIFS,
    RESIDUES,
    STOPS,
    CodingParts,
    batches,
    count,
)
from virnucpro.encoders.genes.genes import (
    CODE,
    IS_STOP,
    STARTS,
    Scores,
    Spans,
    find_genes,
)
from virnucpro.sequences.translation import CODON_LETTERS

SIDES: Final = ("phage", "other virus", "prokaryote", "other host")
LEVELS: Final = 3
WORD_NAMES: Final = (
    "words", *(f"{side} word, level {level}" for side in SIDES for level in range(LEVELS))
)  # fmt: skip

N_VALUES: Final = len(SIDES) * LEVELS

_SEED: Final = tuple(i for i, digit in enumerate("110110111001010111") if digit == "1")
_ALPHABET: Final = ("AST", "C", "DE", "FWY", "G", "H", "ILMV", "KR", "NQ", "P", "*")
_LETTER: Final = np.array(
    [
        next(i for i, letters in enumerate(_ALPHABET) if chr(CODE[codon]) in letters)
        for codon in range(64)
    ],
    np.uint64,
)
_MIX: Final = np.uint64(0x9E3779B97F4A7C15)

Keys = NDArray[np.uint32]


def words_of(coding: CodingParts) -> tuple[IntArray, Keys]:
    """Return the gene and the key of each kept word."""
    width = _SEED[-1]
    n = max(len(coding.gene) - width, 0)
    letters = _LETTER[coding.codons]
    word = np.zeros(n, np.uint64)
    for place in _SEED:
        word *= np.uint64(len(_ALPHABET))
        word += letters[place : place + n]
    word *= _MIX
    kept = np.flatnonzero(coding.gene[:n] == coding.gene[width:])
    hashed = word[kept]
    half = (hashed >> np.uint64(31)) & np.uint64(1) == 0
    return coding.gene[kept[half]], (hashed[half] >> np.uint64(32)).astype(np.uint32)


@dataclass(frozen=True, slots=True)
class Scanned:
    """Evidence and kept words of spans.

    Attributes
    ----------
    evidence
        ``(n, DIM)`` uint16.
    owner, keys
        ``(n_words,)``: number of the span, and the key, of each word.
    """

    evidence: NDArray[np.uint16]
    owner: IntArray
    keys: Keys


def scan(spans: Sequence[bytes], scores: Scores) -> Scanned:
    """Find the genes of spans once, for evidence and words."""
    if (compiled := library()) is not None:
        return _scan_compiled(compiled, spans, scores)
    evidence = np.empty((len(spans), DIM), np.uint16)
    owners, keys = [np.empty(0, np.int64)], [np.empty(0, np.uint32)]
    for rows in batches(spans):
        batch = Spans.of([spans[row] for row in rows])
        scored = batch.scored(scores)
        genes = find_genes(batch, scored)
        coding = CodingParts.of(batch, genes)
        evidence[rows] = count(batch, scored, genes, coding)
        gene, key = words_of(coding)
        owners.append(rows[genes.span[gene]])
        keys.append(key)
    return Scanned(evidence, np.concatenate(owners), np.concatenate(keys))


def _scan_compiled(compiled: CDLL, spans: Sequence[bytes], scores: Scores) -> Scanned:
    n, bases = len(spans), b"".join(spans)
    lengths = np.fromiter(map(len, spans), np.int64, n)
    scores = np.ascontiguousarray(scores)
    evidence, counts = np.empty((n, DIM), np.uint16), np.empty(n, np.int64)
    keys = np.empty(len(bases), np.uint32)
    n_keys = compiled.virnucpro_scan(_tables(), scores, bases, lengths, n, evidence, keys, counts)
    if n_keys < 0:
        raise MemoryError
    return Scanned(evidence, np.repeat(np.arange(n), counts), keys[:n_keys].copy())


@cache
def _tables() -> GeneTables:
    """Return what the compiled form of `scan` looks up."""
    tables = GeneTables()
    motifs = [[*map(CODON_LETTERS.index, motif.encode())] for motif in MOTIFS]
    fill(
        tables,
        numbers=NUMBERS,
        fours=COLUMN_OF_4,
        residues=RESIDUES,
        is_stop=IS_STOP[:64],
        starts=np.array(STARTS),
        stops=np.array(STOPS),
        motifs=np.array([motif + [4] * (6 - len(motif)) for motif in motifs]),
        seed=np.array(_SEED),
        letters=_LETTER,
        hydropathy=HYDROPATHY,
        charge=CHARGE,
        n_letters=len(_ALPHABET),
        mix=int(_MIX),
    )
    return tables


_PREFIX: Final = 14
"""Bits of a key after its prefix: a table has the place of the first key of each prefix."""


@dataclass(frozen=True)
class WordTable:
    """Known words.

    Attributes
    ----------
    keys
        ``(n,)`` uint32, ascending.
    values
        ``(n,)`` uint8: side times `LEVELS` plus level, below `N_VALUES`.
    """

    keys: Keys
    values: ByteArray

    @cached_property
    def _starts(self) -> Int32Array:
        """Place of the first key of each prefix, and the number of keys."""
        n_prefixes = 1 << (32 - _PREFIX)
        counts = np.bincount(self.keys >> np.uint32(_PREFIX), minlength=n_prefixes)
        return np.concatenate(([0], np.cumsum(counts))).astype(np.int32)

    def count(self, owner: IntArray, keys: Keys, n: int) -> IntArray:
        """Return the sums of `WORD_NAMES` of n owners, ``(n, 13)``."""
        if (compiled := library()) is not None:
            found = np.zeros((n, len(WORD_NAMES)), np.int64)
            known = self.keys, self.values, self._starts, _PREFIX
            assert len(owner) == len(keys)
            compiled.virnucpro_count_words(*known, owner, keys, len(keys), found.shape[1], found)
            return found
        place, hit = look_up(self.keys, keys)
        return count_values(owner, owner[hit], self.values[place], n)


def look_up(table: Keys, keys: Keys) -> tuple[IntArray, IntArray]:
    """Return the places in the table of keys that are in it, and which keys these are.

    They are in the order of the keys: a search for sorted keys takes a third of the time.
    """
    if not len(table):
        return np.empty(0, np.int64), np.empty(0, np.int64)
    order = np.argsort(keys)
    ascending = keys[order]
    place = np.searchsorted(table[:-1], ascending)
    known = np.flatnonzero(table[place] == ascending)
    return place[known], order[known]


def count_values(owner: IntArray, known: IntArray, values: ByteArray, n: int) -> IntArray:
    """Count all words by `owner`, and the values of known words by the owner in `known`."""
    cells = table(known, values, n, N_VALUES)
    return np.column_stack((np.bincount(owner, minlength=n), cells))

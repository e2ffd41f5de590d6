"""Evidence of a span, and the protein words of its genes, with which groups have them.

Evidence are sums of integers, so that the evidence of a record is the sum over its spans. `LAYOUT`
states the parts of the vector of `DIM` sums; `NAMES` has a name for each. All sums of a span are
below 2 ** 16. Evidence is a pure function of the bases of a span and the codon scores. The reverse
complement of a span has the same evidence, except for ties between genes or coding paths, and for
sums of strands, which are exchanged.

A word is twelve places of a gene's protein under a spaced seed, in an alphabet of eleven letters.
Its key is a hash of 32 bits; one of two words is kept, by the hash. The value of a known word names
the side that has it most often, and how sure that is. Counts of values are sums, as all evidence.
"""

from collections.abc import Iterator, Sequence
from ctypes import CDLL
from dataclasses import dataclass
from functools import cache, cached_property
from itertools import accumulate, pairwise
from typing import Final

import numpy as np
from numpy.typing import NDArray

from virnucpro.arrays import ByteArray, Int32Array, IntArray, joined_ranges, table
from virnucpro.compiled import GeneTables, filled, library
from virnucpro.encoders.composition.features import (
    AMINO_ACIDS,
    COLUMN_OF_4,
    NAMES_OF_4,
    PROPERTIES,
    all_words,
    residues_of,
)
from virnucpro.encoders.composition.letters import NUMBERS, codon_number
from virnucpro.encoders.genes.coding_path import STEPS, coding_paths
from virnucpro.encoders.genes.genes import (
    CODE,
    IS_STOP,
    SPAN,
    STARTS,
    UNIT,
    Genes,
    Scores,
    Spans,
    find_genes,
)
from virnucpro.sequences.translation import CODON_LETTERS

STOPS: Final = tuple(map(codon_number, ("TAA", "TAG", "TGA")))
_LENGTHS: Final = (0, 200, 300, 500, 1000, 2000, SPAN + 1)
_GAPS: Final = (-SPAN, 0, 30, 100, 300, SPAN)
MOTIFS: Final = ("AGGAGG", "GGAGG", "AGGAG", "GGAG", "GAGG", "AGGA")
_UPSTREAM: Final = 18
_ZONES: Final = 3
_SPACERS: Final = (0, 5, 9, _UPSTREAM)
_SPREADS: Final = ("gc3", "hydropathy", "charge")

LAYOUT: Final = {
    "bases": ("known", "unknown"),
    "words": tuple(f"4 {name}" for name in NAMES_OF_4),
    "codons": tuple(f"gene {codon}" for codon in all_words(3)),
    "dipeptides": tuple(f"{chr(a)}{chr(b)}" for a in AMINO_ACIDS for b in AMINO_ACIDS),
    "path": tuple(f"path {codon}" for codon in all_words(3)),
    "steps": STEPS,
    "genes": ("genes", "complete", "known start", "known stop", "gene codons", "gene score"),
    "strand": ("forward codons", "reverse codons"),
    "lengths": tuple(f"complete >= {length}" for length in _LENGTHS[:-1]),
    "starts": ("ATG", "GTG", "TTG"),
    "stops": ("TAA", "TAG", "TGA"),
    "gaps": tuple(f"{kind} gap >= {gap}" for kind in ("same", "switch") for gap in _GAPS[:-1]),
    "motifs": (*MOTIFS, "no motif"),
    "spacers": tuple(f"spacer >= {spacer}" for spacer in _SPACERS[:-1]),
    "upstream": tuple(f"zone {zone} {letter}" for zone in range(_ZONES) for letter in "TCAG"),
    "spreads": tuple(f"{name} {of}" for name in _SPREADS for of in ("sum", "square")),
    "small": ("small hydrophobic", "acidic", "small basic"),
}
"""Names of the sums by part."""
NAMES: Final = tuple(name for names in LAYOUT.values() for name in names)
DIM: Final = len(NAMES)
PARTS: Final = {
    part: slice(*ends)
    for part, ends in zip(
        LAYOUT, pairwise(accumulate(map(len, LAYOUT.values()), initial=0)), strict=True
    )
}

_BATCH: Final = 1024
RESIDUES: Final = residues_of(CODE)
_IS_GC3: Final = np.arange(64) & 1
HYDROPATHY: Final = np.array(PROPERTIES["hydropathy"])[RESIDUES]
CHARGE: Final = np.array(PROPERTIES["charge"])[RESIDUES]


@dataclass(frozen=True, slots=True)
class CodingParts:
    """The codons of all genes, one gene after the other, in reading direction.

    Attributes
    ----------
    gene
        ``(n,)`` int64: number of the gene.
    codons
        ``(n,)`` uint8, 0 to 63.
    """

    gene: IntArray
    codons: ByteArray

    @classmethod
    def of(cls, spans: Spans, genes: Genes) -> "CodingParts":
        """Read the codons of genes."""
        gene = np.repeat(np.arange(len(genes.codons)), genes.codons)
        return cls(gene, spans.frames.ravel()[joined_ranges(genes.place, genes.codons)])


def cut(record: bytes) -> list[bytes]:
    """Return the spans of a record: equal lengths, without overlap."""
    n = max(1, -(-len(record) // SPAN))
    ends = [len(record) * number // n for number in range(n + 1)]
    return [record[a:b] for a, b in pairwise(ends)]


def batches(spans: Sequence[bytes]) -> Iterator[IntArray]:
    """Yield the numbers of spans of similar length; results do not depend on it."""
    order = np.argsort(np.fromiter(map(len, spans), np.int64, len(spans)), kind="stable")
    for start in range(0, len(order), _BATCH):
        yield order[start : start + _BATCH]


def count(
    spans: Spans, scored: NDArray[np.int16], genes: Genes, coding: CodingParts
) -> NDArray[np.uint16]:
    """Return the evidence of spans whose genes are known."""
    n = len(spans.lengths)
    found = np.zeros((n, DIM), np.int64)
    n_known = np.count_nonzero(spans.letters < 4, axis=1)
    found[:, PARTS["bases"]] = np.column_stack((n_known, spans.lengths - n_known))
    found[:, PARTS["words"]] = _words(spans)
    span = genes.span[coding.gene]
    found[:, PARTS["codons"]] = table(span, coding.codons, n, 64)
    for name, sums in zip(
        ("path", "dipeptides", "steps"), coding_paths(spans, scored), strict=True
    ):
        found[:, PARTS[name]] = sums
    _count_genes(spans, genes, found)
    _count_borders(spans, genes, found)
    _count_spreads(genes, coding, found)
    return np.minimum(found, np.iinfo(np.uint16).max).astype(np.uint16)


def _words(spans: Spans) -> IntArray:
    letters = spans.letters
    words = np.zeros((len(letters), letters.shape[1] - 3), np.uint16)
    unknown = np.zeros_like(letters[:, 3:])
    for shift in range(4):
        column = letters[:, shift : letters.shape[1] - 3 + shift]
        words = words << np.uint16(2) | column & np.uint8(3)
        unknown |= column & np.uint8(4)
    words |= unknown.astype(np.uint16) << np.uint16(6)
    by_word = np.empty((len(letters), 512), np.int64)
    for start in range(0, len(letters), 128):  # a number of 128 rows and a word have 16 bits
        some = words[start : start + 128]
        some += (np.arange(len(some), dtype=np.uint16) << np.uint16(9))[:, None]
        counts = np.bincount(some.ravel(), minlength=len(some) << 9)
        by_word[start : start + 128] = counts.reshape(-1, 512)
    found = np.zeros((len(letters), len(NAMES_OF_4)), np.int64)
    np.add.at(found.T, COLUMN_OF_4, by_word[:, :256].T)
    return found


def _count_genes(spans: Spans, genes: Genes, found: IntArray) -> None:
    n = len(spans.lengths)

    def per(values: NDArray[np.generic]) -> IntArray:
        return np.bincount(genes.span, values, n).astype(np.int64)

    complete = ~(genes.open5 | genes.open3)
    columns = (np.ones_like(genes.span), complete, ~genes.open5, ~genes.open3, genes.codons)
    found[:, PARTS["genes"]] = np.column_stack([*map(per, columns), per(genes.score // UNIT)])
    found[:, PARTS["strand"]] = np.column_stack(
        [per(np.where(genes.reverse == side, genes.codons, 0)) for side in (False, True)]
    )
    length = np.digitize(3 * genes.codons[complete], _LENGTHS[1:-1])
    found[:, PARTS["lengths"]] = table(genes.span[complete], length, n, len(_LENGTHS) - 1)
    flat = spans.frames.ravel()
    first = flat[genes.place[~genes.open5]]
    last = flat[(genes.place + genes.codons)[~genes.open3]]
    for part, open_end, codons, kinds in (
        ("starts", genes.open5, first, STARTS),
        ("stops", genes.open3, last, STOPS),
    ):
        span = genes.span[~open_end]
        found[:, PARTS[part]] = np.column_stack(
            [np.bincount(span[codons == kind], minlength=n) for kind in kinds]
        )
    same = genes.span[1:] == genes.span[:-1]
    gap = np.digitize((genes.left[1:] - genes.right[:-1])[same], _GAPS[1:-1])
    switch = (genes.reverse[1:] != genes.reverse[:-1])[same]
    cell = switch * (len(_GAPS) - 1) + gap
    found[:, PARTS["gaps"]] = table(genes.span[1:][same], cell, n, 2 * (len(_GAPS) - 1))


def _count_borders(spans: Spans, genes: Genes, found: IntArray) -> None:
    """Count ribosome binding sites and letters in the bases before known starts."""
    n, width = spans.letters.shape
    known = genes.select(~genes.open5)
    away = np.arange(_UPSTREAM, 0, -1)
    place = np.where(
        known.reverse[:, None], known.right[:, None] - 1 + away, known.left[:, None] - away
    )
    inside = (place >= 0) & (place < width)
    letters = spans.letters[known.span[:, None], np.clip(place, 0, width - 1)]
    letters = np.where(known.reverse[:, None] & (letters < 4), letters ^ 2, letters)
    letters = np.where(inside, letters, 4)
    zone = np.arange(_UPSTREAM) * _ZONES // _UPSTREAM * 5
    cells = known.span[:, None] * (5 * _ZONES) + zone + letters
    by_zone = np.bincount(cells.ravel(), minlength=n * 5 * _ZONES).reshape(n, _ZONES, 5)
    found[:, PARTS["upstream"]] = by_zone[:, :, :4].reshape(n, 4 * _ZONES)
    kind = np.full(len(letters), len(MOTIFS))
    spacer = np.zeros(len(letters), np.int64)
    for number, motif in enumerate(MOTIFS):
        wanted = np.array([b"TCAG".index(letter) for letter in motif.encode()])
        views = np.lib.stride_tricks.sliding_window_view(letters, len(motif), axis=1)
        hits = (views == wanted).all(axis=2)
        new = hits.any(axis=1) & (kind == len(MOTIFS))
        kind[new] = number
        spacer[new] = hits[new, ::-1].argmax(axis=1)
    found[:, PARTS["motifs"]] = table(known.span, kind, n, len(MOTIFS) + 1)
    some = kind < len(MOTIFS)
    spacing = np.digitize(spacer[some], _SPACERS[1:-1])
    found[:, PARTS["spacers"]] = table(known.span[some], spacing, n, len(_SPACERS) - 1)


def _count_spreads(genes: Genes, coding: CodingParts, found: IntArray) -> None:
    """Add up properties of genes, and their squares, weighted by codons."""
    n, n_genes = len(found), len(genes.codons)
    columns = []
    for values, scale in ((_IS_GC3, 31), (HYDROPATHY, 1), (CHARGE, 10)):
        sums = np.bincount(coding.gene, values[coding.codons], n_genes).astype(np.int64)
        mean = np.clip(15 + scale * sums // np.maximum(genes.codons, 1), 0, 46)
        columns += [
            np.bincount(genes.span, weight, n).astype(np.int64)
            for weight in (mean * genes.codons, mean**2 * genes.codons // 64)
        ]
        if values is HYDROPATHY:
            hydropathy = sums / np.maximum(genes.codons, 1)
        if values is CHARGE:
            charge = sums / np.maximum(genes.codons, 1)
    found[:, PARTS["spreads"]] = np.column_stack(columns)
    small = genes.codons < 150
    kinds = (small & (hydropathy > 8), charge < -0.5, small & (charge > 0.5))
    found[:, PARTS["small"]] = np.column_stack(
        [np.bincount(genes.span[kind], minlength=n) for kind in kinds]
    )


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
    motifs = [[*map(CODON_LETTERS.index, motif.encode())] for motif in MOTIFS]
    return filled(
        GeneTables,
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

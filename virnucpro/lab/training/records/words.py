"""Known protein words: those of at least `LEAST_GENOMES` genomes, without a group if need be."""

from dataclasses import dataclass
from typing import Final

import numpy as np

from virnucpro.arrays import BoolArray, ByteArray, IntArray
from virnucpro.encoders.genes.evidence import (
    LEVELS,
    SIDES,
    Keys,
    WordTable,
    count_values,
    look_up,
)

LEAST_GENOMES: Final = 3

_PURE: Final = 0.7
_MANY: Final = 3


def values_of(counts: IntArray, totals: IntArray) -> ByteArray:
    """Return the value of words.

    Parameters
    ----------
    counts
        ``(n, 4)``: groups of each side that have the word.
    totals
        ``(4,)``: groups of each side.
    """
    share = counts / np.maximum(totals, 1)
    best = share.argmax(axis=1)
    purity = share[np.arange(len(best)), best] / np.maximum(share.sum(axis=1), 1e-9)
    level = np.where(purity < _PURE, 0, np.where(counts.sum(axis=1) < _MANY, 1, 2))
    values: ByteArray = (best * LEVELS + level).astype(np.uint8)
    return values


@dataclass(frozen=True, slots=True)
class WordGroups:
    """Which groups have which words, in how many genomes.

    Attributes
    ----------
    keys
        ``(n_keys,)`` uint32, ascending.
    key, genome
        ``(n_pairs,)``: number of the key, and of a genome that has it.
    group
        ``(n_genomes,)``: number of each genome's group.
    sides
        ``(n_groups,)``: number of each group's side.
    """

    keys: Keys
    key: IntArray
    genome: IntArray
    group: IntArray
    sides: IntArray

    @classmethod
    def of(cls, keys: Keys, genome: IntArray, group: IntArray, sides: IntArray) -> "WordGroups":
        """Join words of genomes; words of fewer than `LEAST_GENOMES` genomes are left out."""
        pairs = np.sort(keys.astype(np.uint64) << np.uint64(16) | genome.astype(np.uint64))
        key = (pairs >> np.uint64(16)).astype(np.uint32)
        first = np.flatnonzero(np.diff(key.astype(np.int64), prepend=-1))
        size = np.diff(first, append=len(key))
        kept = size >= LEAST_GENOMES
        rows = np.repeat(kept, size)
        number = np.repeat(np.cumsum(kept) - 1, size)[rows]
        owner = (pairs[rows] & np.uint64(65535)).astype(np.int64)
        return cls(key[first[kept]], number, owner, group, sides)

    def known(self, genomes: BoolArray) -> "KnownWords":
        """Return the words of the genomes in `genomes`, ``(n_genomes,)``."""
        rows = genomes[self.genome]
        pairs = self.key[rows] * len(self.sides) + self.group[self.genome[rows]]
        cells, sizes = np.unique(pairs, return_counts=True)
        key, group = np.divmod(cells, len(self.sides))
        counts = np.bincount(
            key * len(SIDES) + self.sides[group], minlength=len(self.keys) * len(SIDES)
        ).reshape(-1, len(SIDES))
        has = np.unique(self.group[genomes])
        totals = np.bincount(self.sides[has], minlength=len(SIDES))
        n_genomes = np.bincount(key, sizes, len(self.keys)).astype(np.int64)
        return KnownWords(self, cells, sizes, counts, n_genomes, totals)


@dataclass(frozen=True, slots=True)
class KnownWords:
    """The words of a training set.

    Attributes
    ----------
    of
        All words.
    cells, sizes
        ``(n_cells,)``: key times groups plus group, ascending; and genomes of the group with it.
    counts, n_genomes
        ``(n_keys, 4)``: groups of each side that have the word; ``(n_keys,)``: their genomes.
    totals
        ``(4,)``: groups of each side.
    """

    of: WordGroups
    cells: IntArray
    sizes: IntArray
    counts: IntArray
    n_genomes: IntArray
    totals: IntArray

    def table(self) -> WordTable:
        """Return the words of enough genomes; one word of no genome if there are none."""
        kept = self.n_genomes >= LEAST_GENOMES
        if not kept.any():
            return WordTable(np.zeros(1, np.uint32), np.zeros(1, np.uint8))
        return WordTable(self.of.keys[kept], values_of(self.counts[kept], self.totals))

    def count_others(self, owner: IntArray, keys: Keys, group: IntArray) -> IntArray:
        """Return the sums of `WORD_NAMES` as if the group of each owner were not known.

        Parameters
        ----------
        group
            ``(n_owners,)``: number of the group.
        """
        place, found = look_up(self.of.keys, keys)
        own = group[owner[found]]
        cell = place * len(self.of.sides) + own
        at = np.minimum(np.searchsorted(self.cells, cell), len(self.cells) - 1)
        here = self.cells[at] == cell
        kept = self.n_genomes[place] - np.where(here, self.sizes[at], 0) >= LEAST_GENOMES
        counts = self.counts[place]
        counts[np.arange(len(place)), self.of.sides[own]] -= here
        values = values_of(counts[kept], self.totals)
        return count_values(owner, owner[found[kept]], values, len(group))

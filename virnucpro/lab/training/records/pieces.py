"""Pieces of records for training: drawn at random, with the evidence and words of their genes."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from virnucpro.arrays import Float32Array, IntArray
from virnucpro.encoders.genes.encoder import scan_pieces
from virnucpro.encoders.genes.evidence import Keys, WordTable, cut, scan
from virnucpro.encoders.genes.genes import SPAN, Scores
from virnucpro.encoders.genes.inputs import N_INPUTS, vectors_of
from virnucpro.lab.training.draw import Drawn, counted_bases, draw_errors, is_known
from virnucpro.lab.training.genomes import VIRUS, Genome, by_group
from virnucpro.lab.training.weights import PROKARYOTES, is_phage

_LENGTHS: Final = ((300, 2_000), (1_500, 30_000))
"""Shortest and longest pieces of each half; lengths are log-uniform."""
_ERRORS: Final = ((1 / 3, 0.06), (2 / 3, 0.07))
"""Share of the pieces of each half that have errors, and the highest rate: long reads have most."""
_A_ROOT_BASE: Final = 0.8
_A_VIRUS_GROUP: Final = (160, 2120)
_A_HOST_GROUP: Final = (32, 1600)
_LEAST: Final = 300
_WORD_BASES: Final = {True: 800_000, False: 200_000}
"""Maximum bases of a group whose words are read: of viruses and prokaryotes, of others."""
_AT_ONCE: Final = 400


@dataclass(frozen=True, slots=True)
class RecordPieces:
    """Evidence and words of n pieces.

    Attributes
    ----------
    evidence
        ``(n, DIM)`` int64, sums over the spans of each piece.
    owner, keys
        ``(n_words,)``: number of the piece, and the key, of each word.
    """

    evidence: IntArray
    owner: IntArray
    keys: Keys

    @classmethod
    def of(cls, bases: Sequence[bytes], scores: Scores) -> "RecordPieces":
        """Find the evidence and the words of pieces."""
        starts = range(0, len(bases), _AT_ONCE)
        found = [scan_pieces(bases[start : start + _AT_ONCE], scores) for start in starts]
        evidence, owners, keys = zip(*found, strict=True)
        owner = [start + numbers for start, numbers in zip(starts, owners, strict=True)]
        return cls(np.concatenate(evidence), np.concatenate(owner), np.concatenate(keys))

    def inputs(self, table: WordTable, means: Float32Array) -> Float32Array:
        """Return the inputs of the record head, ``(n, N_INPUTS)``."""
        words = table.count(self.owner, self.keys, len(self.evidence))
        return vectors_of(np.concatenate((self.evidence, words), axis=1), means)[:, :N_INPUTS]


def draw_record_pieces(genomes: Sequence[Genome], seed: int) -> Drawn:
    """Draw pieces of all groups, half of them with errors; lengths are log-uniform."""
    rng = np.random.default_rng([seed, 3])
    drawn = Drawn([], [], [])
    for (kingdom, _), members in by_group(genomes).items():
        choices = [
            (genome, bases)
            for genome in members
            for bases in genome.sequences
            if len(bases) > _LEAST
        ]
        if not choices:
            continue
        total = {genome.name: sum(map(len, genome.sequences)) for genome in members}
        weights = np.array([len(s) / total[g.name] * counted_bases([g]) ** 0.5 for g, s in choices])
        limits = _A_VIRUS_GROUP if kingdom == VIRUS else _A_HOST_GROUP
        count = int(np.clip(_A_ROOT_BASE * counted_bases(members) ** 0.5, *limits))
        for choice in rng.choice(len(choices), count, p=weights / weights.sum()).tolist():
            genome, sequence = choices[choice]
            half = int(rng.integers(2))
            length = int(np.exp(rng.uniform(*np.log(_LENGTHS[half]))))
            length = min(length, len(sequence))
            start = int(rng.integers(len(sequence) - length + 1))
            piece = sequence[start : start + length]
            if is_known(piece):
                drawn.bases.append(draw_errors(piece, rng, *_ERRORS[half]))
                drawn.groups.append(genome.key)
                drawn.sources.append(genome.source)
    return drawn


def side_of(genome: Genome) -> int:
    """Return the number in `words.SIDES` of a genome."""
    if genome.viral:
        return 0 if is_phage(genome.source) else 1
    return 2 if genome.kingdom in (*PROKARYOTES, "plasmid") else 3


def genome_words(genomes: Sequence[Genome], scores: Scores, seed: int) -> tuple[Keys, IntArray]:
    """Return the words of genomes, and the number of the genome of each.

    The bases of a group are limited, shared by its genomes.
    """
    rng = np.random.default_rng([seed, 4])
    numbers = {id(genome): number for number, genome in enumerate(genomes)}
    keys, owners = [], []
    for (kingdom, _), members in by_group(genomes).items():
        bases = _WORD_BASES[kingdom in (VIRUS, *PROKARYOTES)] // len(members)
        for genome in members:
            spans = [span for sequence in genome.sequences for span in cut(sequence)]
            if (most := max(bases // SPAN, 6)) < len(spans):
                spans = [spans[i] for i in rng.permutation(len(spans))[:most]]
            own = np.unique(scan(spans, scores).keys)
            keys.append(own)
            owners.append(np.full(len(own), numbers[id(genome)]))
    return np.concatenate(keys), np.concatenate(owners)

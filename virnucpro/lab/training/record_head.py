"""Training of a record head: codon scores, pieces of records, known words, logits of other groups.

Known protein words are those of at least `LEAST_GENOMES` genomes, without a group if need be.
"""

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import numpy as np
import torch

from virnucpro.arrays import (
    BoolArray,
    ByteArray,
    Float32Array,
    FloatArray,
    Int32Array,
    IntArray,
    slices,
)
from virnucpro.classifier.calibration import share_of_errors
from virnucpro.classifier.head import VIRAL
from virnucpro.encoders.genes.coding_path import STEPS
from virnucpro.encoders.genes.encoder import scan_pieces
from virnucpro.encoders.genes.evidence import (
    DIM,
    LAYOUT,
    LEVELS,
    PARTS,
    SIDES,
    WORD_NAMES,
    Keys,
    WordTable,
    count_values,
    cut,
    look_up,
    scan,
)
from virnucpro.encoders.genes.genes import (
    FRAMES,
    GC_CLASSES,
    HIGHEST_SCORE,
    IS_STOP,
    SPAN,
    UNIT,
    Scores,
    Spans,
    open_frames,
)
from virnucpro.encoders.genes.inputs import N_INPUTS, WIDTH, vectors_of
from virnucpro.errors import InputError
from virnucpro.lab.training.cross_validation import logits_of_folds
from virnucpro.lab.training.draw import Drawn, PieceKind, counted_bases, draw_errors, is_known
from virnucpro.lab.training.genomes import GROUPS, VIRUS, Genome, by_group
from virnucpro.lab.training.network import BLOCK_ROWS, Ensemble, examples_of, train
from virnucpro.lab.training.settings import NetworkSettings
from virnucpro.lab.training.weights import PROKARYOTES, draw_weights, is_phage
from virnucpro.run.reporter import Reporter

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
        ``(n_pairs,)`` int32: number of the key, and of a genome that has it.
    group
        ``(n_genomes,)``: number of each genome's group.
    sides
        ``(n_groups,)``: number of each group's side.
    """

    keys: Keys
    key: Int32Array
    genome: Int32Array
    group: IntArray
    sides: IntArray

    @classmethod
    def of(cls, keys: Keys, genome: IntArray, group: IntArray, sides: IntArray) -> "WordGroups":
        """Join words of genomes; words of fewer than `LEAST_GENOMES` genomes are left out."""
        pairs = keys.astype(np.uint64) << np.uint64(16)
        pairs |= genome.astype(np.uint64)
        pairs.sort()
        key = (pairs >> np.uint64(16)).astype(np.uint32)
        first = np.flatnonzero(np.concatenate(([True], key[1:] != key[:-1])))
        size = np.diff(first, append=len(key))
        kept = size >= LEAST_GENOMES
        rows = np.repeat(kept, size)
        number = np.repeat(np.arange(int(kept.sum()), dtype=np.int32), size[kept])
        owner = (pairs[rows] & np.uint64(65535)).astype(np.int32)
        return cls(key[first[kept]], number, owner, group, sides)

    def known(self, genomes: BoolArray) -> "KnownWords":
        """Return the words of the genomes in `genomes`, ``(n_genomes,)``."""
        rows = genomes[self.genome]
        pairs = self.key[rows] * np.int64(len(self.sides))
        pairs += self.group[self.genome[rows]]
        pairs.sort()
        first = np.flatnonzero(np.diff(pairs, prepend=-1))
        cells, sizes = pairs[first], np.diff(first, append=len(pairs))
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


_LEAST_CODONS: Final = 200


def learn_scores(spans: Sequence[bytes]) -> Scores:
    """Return codon scores, learned from the runs of at least `_LEAST_CODONS` codons in `spans`."""
    genes, others = np.full((GC_CLASSES, 64), 20.0), np.full((GC_CLASSES, 64), 20.0)
    for start in range(0, len(spans), 256):
        batch = Spans.of(spans[start : start + 256])
        m = batch.frames.shape[2]
        found = open_frames(batch.frames, _LEAST_CODONS)
        for span, left, codons, place in zip(
            found.span, found.left, found.codons, found.place, strict=True
        ):
            of, gc = batch.frames[span], batch.gc[span]
            frame, begin = divmod(place - span * of.size, m)
            genes[gc] += np.bincount(of[frame, begin : begin + codons], minlength=64)[:64]
            first = left // 3
            both = (slice(first, first + codons), slice(m - 1 - first - codons, m - 1 - first))
            for other in range(FRAMES):
                if other != frame:
                    shadow = of[other, both[other // 3]]
                    others[gc] += np.bincount(shadow, minlength=128)[:64]
    odds = np.log(genes / genes.sum(axis=1, keepdims=True))
    odds -= np.log(others / others.sum(axis=1, keepdims=True))
    scores = np.zeros((GC_CLASSES, 128), np.int16)
    scores[:, :64] = np.clip(np.rint(UNIT * odds), -HIGHEST_SCORE, HIGHEST_SCORE)
    scores[:, IS_STOP] = -HIGHEST_SCORE
    return scores


_LENGTHS: Final = ((300, 2_000), (1_500, 30_000))
"""Shortest and longest pieces of each half; lengths are log-uniform."""
_ERRORS: Final = ((1 / 3, 0.06), (2 / 3, 0.07))
"""Share of the pieces of each half that have errors, and the highest rate: long reads have most."""
_A_ROOT_BASE: Final = 0.5
_A_VIRUS_GROUP: Final = (110, 1300)
_A_HOST_GROUP: Final = (24, 1000)
_LEAST_BASES: Final = 300
_WORD_BASES: Final = {True: 800_000, False: 200_000}
"""Maximum bases of a group whose words are read: of viruses and prokaryotes, of others."""
_AT_ONCE: Final = 400


@dataclass(frozen=True, slots=True)
class RecordPieces:
    """Evidence and words of n pieces.

    Attributes
    ----------
    evidence
        ``(n, DIM)`` int32, sums over the spans of each piece.
    n_words
        ``(n,)``, words of each piece.
    keys
        Key of each word, of `_AT_ONCE` pieces in one array.
    """

    evidence: Int32Array
    n_words: IntArray
    keys: Sequence[Keys]

    @classmethod
    def of(cls, bases: Sequence[bytes], scores: Scores) -> "RecordPieces":
        """Find the evidence and the words of pieces."""
        evidence, n_words = np.empty((len(bases), DIM), np.int32), np.empty(len(bases), np.int64)
        found = []
        for rows in slices(len(bases), _AT_ONCE):
            evidence[rows], owner, keys = scan_pieces(bases[rows], scores)
            n_words[rows] = np.bincount(owner, minlength=rows.stop - rows.start)
            found.append(keys[np.argsort(owner, kind="stable")])
        return cls(evidence, n_words, found)

    def words(self) -> Iterator[tuple[slice, IntArray, Keys]]:
        """Yield some pieces, the number among them of the piece of each word, and its key."""
        for rows, keys in zip(slices(len(self.n_words), _AT_ONCE), self.keys, strict=True):
            counts = self.n_words[rows]
            yield rows, np.repeat(np.arange(len(counts)), counts), keys

    def inputs(self, table: WordTable, means: Float32Array) -> Float32Array:
        """Return the inputs of the record head, ``(n, N_INPUTS)``."""
        known = [
            table.count(owner, keys, rows.stop - rows.start) for rows, owner, keys in self.words()
        ]
        sums: IntArray = np.concatenate((self.evidence, np.concatenate(known)), axis=1)
        return vectors_of(sums, means)[:, :N_INPUTS]


def draw_record_pieces(genomes: Sequence[Genome], seed: int) -> Drawn:
    """Draw pieces of all groups, half of them with errors; lengths are log-uniform."""
    rng = np.random.default_rng([seed, 3])
    drawn = Drawn([], [])
    for (kingdom, _), members in by_group(genomes).items():
        choices = [
            (genome, bases)
            for genome in members
            for bases in genome.sequences
            if len(bases) > _LEAST_BASES
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
                drawn.genomes.append(genome)
    return drawn


def side_of(genome: Genome) -> int:
    """Return the number in `SIDES` of the words of a genome."""
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
            owners.append(np.full(len(own), numbers[id(genome)], np.int32))
    return np.concatenate(keys), np.concatenate(owners)


_LEARNED: Final = 800
_SPANS: Final = 12
"""Genomes, and spans of each, that the codon scores are learned from."""


@dataclass(frozen=True, slots=True)
class RecordModel:
    """A trained record head with its encoder.

    Attributes
    ----------
    scores, table, means
        Tensors of the encoder of genes.
    ensemble
        The networks.
    """

    scores: Scores
    table: WordTable
    means: Float32Array
    ensemble: Ensemble

    def logits(self, pieces: RecordPieces) -> FloatArray:
        """Return the logit of each piece, ``(n,)``."""
        return self.ensemble.logits(pieces.inputs(self.table, self.means))

    def tensors(self) -> tuple[dict[str, torch.Tensor], dict[str, torch.Tensor]]:
        """Return the tensors of the encoder's file, and those of the record head's file."""
        arrays = {"scores": self.scores, "keys": self.table.keys, "values": self.table.values}
        encoder = {name: torch.from_numpy(array) for name, array in arrays.items()}
        head = self.ensemble.tensors() | {VIRAL: self.ensemble.viral.float()}
        return encoder | {"means": torch.from_numpy(self.means)}, head


class RecordTraining:
    """What the training of record heads needs of the genomes of a training set.

    Raises
    ------
    InputError
        If a class has no sequence that is long enough.
    """

    def __init__(self, genomes: Sequence[Genome], seed: int, settings: NetworkSettings) -> None:
        self._seed, self._settings = seed, settings
        self.scores = _learn_from(genomes, seed)
        self._drawn = draw_record_pieces(genomes, seed)
        if len(set(self._drawn.viral.tolist())) < 2:
            raise InputError(
                "a class has no sequence that is long enough for a record head. Give longer "
                "sequences, or train without a record head (--no-records)."
            )
        self._pieces = RecordPieces.of(self._drawn.bases, self.scores)
        self._digest = hashlib.sha256(b"\n".join(self._drawn.bases)).digest()
        self._drawn = replace(self._drawn, bases=[])
        side_by_group = {genome.key: side_of(genome) for genome in genomes}
        names = sorted(side_by_group)
        number = {name: i for i, name in enumerate(names)}
        self._words = WordGroups.of(
            *genome_words(genomes, self.scores, seed),
            np.array([number[genome.key] for genome in genomes]),
            np.array([side_by_group[name] for name in names]),
        )
        self._genomes = genomes
        self._group = np.array([number[group] for group in self._drawn.groups])

    def fit(
        self, finished: Callable[[float], object], scheme: int = GROUPS, fold: int | None = None
    ) -> RecordModel:
        """Train on all genomes, or without a fold; `finished` is as for `train`."""
        folds = np.array([genome.folds[scheme] for genome in self._genomes])
        words = self._words.known(folds != fold)
        by_word = self._count_others(words)
        chosen = self._drawn.folds(scheme) != fold
        drawn = self._drawn.select(chosen)
        sums = _Sums(self._pieces.evidence, by_word, np.flatnonzero(chosen))
        means = _mean_composition(sums, draw_weights(drawn.groups, drawn.sources))
        _, examples = examples_of(drawn, _Vectors(sums, means))
        ensemble = train(examples, self._settings, self._seed, finished)
        return RecordModel(self.scores, words.table(), means, ensemble)

    def _count_others(self, words: KnownWords) -> Int32Array:
        """Return `KnownWords.count_others` of all pieces."""
        found = np.empty((len(self._group), len(WORD_NAMES)), np.int32)
        for rows, owner, keys in self._pieces.words():
            found[rows] = words.count_others(owner, keys, self._group[rows])
        return found

    def cross_validate(
        self,
        pieces: Mapping[PieceKind, Drawn],
        scheme: int,
        reporter: Reporter,
        prefix: Path,
    ) -> dict[PieceKind, FloatArray]:
        """Return, by kind, the logit of each piece by a record head without its fold.

        The logits of each finished fold are kept, as by `logits_of_folds`.

        Parameters
        ----------
        pieces
            Pieces of each kind.
        scheme
            Folds by `GROUPS` or by `RELATIVES`.
        reporter
            Receives a stage for each fold that is trained, and its finished share.
        prefix
            Path of the files, without their numbers.
        """
        folds = {kind: drawn.folds(scheme) for kind, drawn in pieces.items()}

        def logits_of(
            fold: int, inside: Mapping[PieceKind, BoolArray]
        ) -> dict[PieceKind, FloatArray]:
            reporter.stage(f"training the record head for {prefix.name} {fold + 1}")
            model = self.fit(reporter.finished, scheme, fold)
            chosen = {kind: pieces[kind].select(mask).bases for kind, mask in inside.items()}
            return {
                kind: model.logits(RecordPieces.of(bases, self.scores))
                for kind, bases in chosen.items()
            }

        return logits_of_folds(prefix, self._key(pieces, scheme), folds, logits_of)

    def errors(self, pieces: Mapping[PieceKind, Drawn]) -> dict[PieceKind, FloatArray]:
        """Return `share_of_errors` of each piece."""
        found = {}
        for kind, drawn in pieces.items():
            steps = RecordPieces.of(drawn.bases, self.scores).evidence[:, PARTS["steps"]]
            columns = (steps[:, STEPS.index(name)] for name in ("frame shifts", "path codons"))
            found[kind] = share_of_errors(*(column.astype(np.float64) for column in columns))
        return found

    def _key(self, pieces: Mapping[PieceKind, Drawn], scheme: int) -> str:
        """Return a digest of all that decides the logits of a fold."""
        others = (self._settings, self._seed, torch.__version__, self._drawn.sources)
        digest = hashlib.sha256(repr(others).encode() + self._digest)
        for drawn in (self._drawn, *pieces.values()):
            folds = drawn.folds(scheme).tolist()
            digest.update(repr((drawn.groups, folds)).encode() + b"\n".join(drawn.bases))
        for array in (self.scores, self._words.keys, self._words.group):
            digest.update(np.ascontiguousarray(array).data)
        return digest.hexdigest()


def _learn_from(genomes: Sequence[Genome], seed: int) -> Scores:
    """Learn codon scores from spans of viruses and prokaryotes."""
    rng = np.random.default_rng([seed, 5])
    chosen = [genome for genome in genomes if genome.viral or genome.kingdom in PROKARYOTES]
    order = rng.permutation(len(chosen))[:_LEARNED].tolist()
    return learn_scores([span for i in order for span in cut(chosen[i].sequences[0])[:_SPANS]])


@dataclass(frozen=True, slots=True)
class _Sums:
    """Sums of chosen pieces, ``(n, WIDTH)`` int32: evidence, then counts of words."""

    evidence: Int32Array
    words: Int32Array
    chosen: IntArray

    def __getitem__(self, rows: slice) -> Int32Array:
        """Return the sums of a block of the chosen pieces."""
        own = self.chosen[rows]
        return np.concatenate((self.evidence[own], self.words[own]), axis=1)


@dataclass(frozen=True, slots=True)
class _Vectors:
    """Inputs of the record head, computed in blocks of rows."""

    sums: _Sums
    means: Float32Array

    @property
    def shape(self) -> tuple[int, ...]:
        """Numbers of pieces and of inputs."""
        return len(self.sums.chosen), N_INPUTS

    def __getitem__(self, rows: slice) -> Float32Array:
        """Return a block of rows."""
        return vectors_of(self.sums[rows], self.means)[:, :N_INPUTS]


def _mean_composition(sums: _Sums, weights: FloatArray) -> Float32Array:
    """Return the weighted mean share of each sum in its part, ``(WIDTH,)``."""
    found = np.zeros(WIDTH)
    for rows in slices(len(weights), BLOCK_ROWS):
        block = sums[rows]
        for name in LAYOUT:
            own = block[:, PARTS[name]]
            found[PARTS[name]] += weights[rows] @ (own / np.maximum(own.sum(axis=1)[:, None], 1))
    for name in LAYOUT:
        found[PARTS[name]] /= max(found[PARTS[name]].sum(), 1e-9)
    return found.astype(np.float32)

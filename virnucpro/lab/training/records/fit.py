"""Training of a record head, and its logits for groups outside its training set."""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
import torch

from virnucpro.arrays import BoolArray, Float32Array, FloatArray, IntArray
from virnucpro.classifier.calibration import share_of_errors
from virnucpro.classifier.head import VIRAL
from virnucpro.encoders.genes.coding_path import STEPS
from virnucpro.encoders.genes.evidence import LAYOUT, PARTS, WordTable, cut
from virnucpro.encoders.genes.genes import Scores
from virnucpro.encoders.genes.inputs import N_INPUTS, WIDTH, vectors_of
from virnucpro.errors import InputError
from virnucpro.lab.training.cross_validation import logits_of_folds
from virnucpro.lab.training.draw import Drawn, PieceKind
from virnucpro.lab.training.genomes import Genome
from virnucpro.lab.training.network import Ensemble, examples_of, train
from virnucpro.lab.training.records.codons import learn_scores
from virnucpro.lab.training.records.pieces import (
    RecordPieces,
    draw_record_pieces,
    genome_words,
    side_of,
)
from virnucpro.lab.training.records.words import WordGroups
from virnucpro.lab.training.settings import NetworkSettings
from virnucpro.lab.training.weights import PROKARYOTES, draw_weights
from virnucpro.run.reporter import Reporter

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
        side_by_group = {genome.key: side_of(genome) for genome in genomes}
        names = sorted(side_by_group)
        number = {name: i for i, name in enumerate(names)}
        self._names = np.array([name for _, name in names])
        self._words = WordGroups.of(
            *genome_words(genomes, self.scores, seed),
            np.array([number[genome.key] for genome in genomes]),
            np.array([side_by_group[name] for name in names]),
        )
        self._group = np.array([number[group] for group in self._drawn.groups])

    def fit(self, known: BoolArray, finished: Callable[[float], object]) -> RecordModel:
        """Train on the groups in `known`, ``(n_groups,)``; `finished` is as for `train`."""
        words = self._words.known(known[self._words.group])
        by_word = words.count_others(self._pieces.owner, self._pieces.keys, self._group)
        chosen = known[self._group]
        sums: IntArray = np.concatenate((self._pieces.evidence, by_word), axis=1)[chosen]
        drawn = self._drawn.select(chosen)
        means = _mean_composition(sums, draw_weights(drawn.groups, drawn.sources))
        _, examples = examples_of(drawn, vectors_of(sums, means)[:, :N_INPUTS])
        ensemble = train(examples, self._settings, self._seed, finished)
        return RecordModel(self.scores, words.table(), means, ensemble)

    def fit_all(self, finished: Callable[[float], object]) -> RecordModel:
        """Train on all groups; `finished` is as for `train`."""
        return self.fit(np.ones(len(self._names), np.bool_), finished)

    def cross_validate(
        self,
        pieces: Mapping[PieceKind, Drawn],
        folds: Mapping[str, int],
        reporter: Reporter,
        folder: Path,
    ) -> dict[PieceKind, FloatArray]:
        """Return, by kind, the logit of each piece by a record head without its group.

        The logits of each finished fold are kept in `folder`, as by `logits_of_folds`.

        Parameters
        ----------
        pieces
            Pieces of each kind.
        folds
            Fold of each group's name.
        reporter
            Receives a stage for each fold that is trained, and its finished share.
        """
        fold_of_group = np.array([folds[name] for name in self._names.tolist()])

        def logits_of(
            fold: int, inside: Mapping[PieceKind, BoolArray]
        ) -> dict[PieceKind, FloatArray]:
            of = f"fold {fold + 1} of {fold_of_group.max() + 1}"
            reporter.stage(f"training the record head for {of}")
            model = self.fit(fold_of_group != fold, reporter.finished)
            chosen = {kind: pieces[kind].select(mask).bases for kind, mask in inside.items()}
            return {
                kind: model.logits(RecordPieces.of(bases, self.scores))
                for kind, bases in chosen.items()
            }

        groups = {kind: drawn.groups for kind, drawn in pieces.items()}
        key = self._key(pieces, folds)
        return logits_of_folds(folder / "records", key, groups, folds, logits_of)

    def errors(self, pieces: Mapping[PieceKind, Drawn]) -> dict[PieceKind, FloatArray]:
        """Return `share_of_errors` of each piece."""
        found = {}
        for kind, drawn in pieces.items():
            steps = RecordPieces.of(drawn.bases, self.scores).evidence[:, PARTS["steps"]]
            columns = (steps[:, STEPS.index(name)] for name in ("frame shifts", "path codons"))
            found[kind] = share_of_errors(*(column.astype(np.float64) for column in columns))
        return found

    def _key(self, pieces: Mapping[PieceKind, Drawn], folds: Mapping[str, int]) -> str:
        """Return a digest of all that decides the logits of a fold."""
        others = (self._settings, self._seed, folds, torch.__version__, self._drawn.sources)
        digest = hashlib.sha256(repr(others).encode())
        for drawn in (self._drawn, *pieces.values()):
            digest.update(repr(drawn.groups).encode() + b"\n".join(drawn.bases))
        for array in (self.scores, self._words.keys, self._words.group):
            digest.update(np.ascontiguousarray(array).data)
        return digest.hexdigest()


def _learn_from(genomes: Sequence[Genome], seed: int) -> Scores:
    """Learn codon scores from spans of viruses and prokaryotes."""
    rng = np.random.default_rng([seed, 5])
    chosen = [genome for genome in genomes if genome.viral or genome.kingdom in PROKARYOTES]
    order = rng.permutation(len(chosen))[:_LEARNED].tolist()
    return learn_scores([span for i in order for span in cut(chosen[i].sequences[0])[:_SPANS]])


def _mean_composition(sums: IntArray, weights: FloatArray) -> Float32Array:
    """Return the weighted mean share of each sum in its part, ``(WIDTH,)``."""
    found = np.zeros(WIDTH, np.float32)
    for name in LAYOUT:
        own = sums[:, PARTS[name]]
        shares = own / np.maximum(own.sum(axis=1, keepdims=True), 1)
        mean = weights @ shares
        found[PARTS[name]] = mean / max(mean.sum(), 1e-9)
    return found

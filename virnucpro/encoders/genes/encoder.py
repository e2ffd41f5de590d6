"""The encoder of genes: vectors of pieces of records, computed by NumPy on the CPU."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final, Self

import numpy as np

from virnucpro.arrays import Float32Array, Int32Array, IntArray
from virnucpro.encoders.base import EncoderSpec
from virnucpro.encoders.composition.encoder import LettersEncoder, letters_of
from virnucpro.encoders.composition.letters import UNKNOWN_CODON
from virnucpro.encoders.genes.config import GenesConfig
from virnucpro.encoders.genes.evidence import N_VALUES, Keys, Scanned, WordTable, cut, scan
from virnucpro.encoders.genes.genes import HIGHEST_SCORE, SPAN, Scores
from virnucpro.encoders.genes.inputs import N_INPUTS, vectors_of
from virnucpro.encoders.weights.shapes import stored_tensors
from virnucpro.errors import BundleError

MOST_SPANS: Final = 32_000 // SPAN
"""Spans of the longest piece of the published bundles."""
SCALES: Final = (1, 3)
"""Numbers of neighbouring spans that are judged together."""
N_LOGITS: Final = sum(MOST_SPANS - scale + 1 for scale in SCALES)
"""Logits of the parts of a piece: those of all single spans, then of three spans from each on."""


@dataclass(frozen=True, slots=True)
class GenesEncoder(LettersEncoder):
    """Computes the vector of each piece of a batch."""

    scores: Scores
    table: WordTable
    means: Float32Array
    judge: Callable[[Float32Array], Float32Array] | None = None

    def judging(self, judge: Callable[[Float32Array], Float32Array]) -> Self:
        """Return the encoder whose vectors end with the logits of the spans of a piece.

        There are `N_LOGITS`; those that a piece lacks are 0, and so are all of a piece of fewer
        spans than the last of `SCALES`: it is no part of a record that is divided.
        """
        return replace(self, dim=self.dim + N_LOGITS, judge=judge)

    def start(self, batch: list[bytes]) -> Callable[[], Float32Array]:
        """Return a function that returns the vectors, (n, dim) float32."""
        if not batch:
            return lambda: np.empty((0, self.dim), np.float32)
        found, counts = _scanned(batch, self.scores)
        words = self.table.count(found.owner, found.keys, len(found.evidence))
        sums = of_pieces = np.concatenate((found.evidence, words), axis=1, dtype=np.int32)
        if len(sums) > len(counts):  # slow even where each piece has one
            first = np.cumsum(counts) - counts
            of_pieces = np.add.reduceat(sums, first, axis=0, dtype=np.int32)
        vectors = vectors_of(of_pieces, self.means)
        if self.judge is not None:
            vectors = np.concatenate((vectors, self._logits(sums, counts)), axis=1)
        return lambda: vectors

    def _logits(self, sums: Int32Array, counts: IntArray) -> Float32Array:
        """Return the logits of the spans of each piece, ``(n, N_LOGITS)``."""
        assert self.judge is not None
        owner = np.repeat(np.arange(len(counts)), counts)
        place = np.arange(len(owner)) - (np.cumsum(counts) - counts)[owner]
        n_spans = np.where(counts < SCALES[-1], 0, np.minimum(counts, MOST_SPANS))[owner]
        logits, column = np.zeros((len(counts), N_LOGITS), np.float32), 0
        for scale in SCALES:
            first = np.flatnonzero(place + scale <= n_spans)
            if len(first):
                joined = sum((sums[first + shift] for shift in range(1, scale)), sums[first])
                inputs = vectors_of(joined, self.means)[:, :N_INPUTS]
                logits[owner[first], column + place[first]] = self.judge(inputs)
            column += MOST_SPANS - scale + 1
        return logits


def scan_pieces(pieces: Sequence[bytes], scores: Scores) -> tuple[IntArray, IntArray, Keys]:
    """Return the evidence of pieces, and the words of their genes.

    Returns
    -------
    tuple
        ``(n, DIM)`` int64, sums over the spans of each piece; ``(n_words,)`` number of the piece,
        and ``(n_words,)`` uint32 key of each word.
    """
    found, counts = _scanned(pieces, scores)
    first = np.cumsum(counts) - counts
    sums = np.add.reduceat(found.evidence.astype(np.int64), first, axis=0)
    piece = np.repeat(np.arange(len(pieces)), counts)
    return sums, piece[found.owner], found.keys


def _scanned(pieces: Sequence[bytes], scores: Scores) -> tuple[Scanned, IntArray]:
    """Return evidence and words of all spans of pieces, and the number of spans of each piece."""
    spans = [cut(piece) for piece in pieces]
    found = scan([span for piece in spans for span in piece], scores)
    return found, np.array([*map(len, spans)], np.int64)


def load(spec: EncoderSpec, config: GenesConfig, *_: str) -> GenesEncoder:
    """Return the encoder of genes; it runs on the CPU.

    Raises
    ------
    BundleError
        If the file of the weights is missing, damaged, or has other tensors.
    """
    path = spec.file("weights")
    found = stored_tensors(path)
    config.require_weights({name: tensor.shape for name, tensor in found.items()}, path)
    for name, kind in _TYPES.items():
        if found[name].dtype != kind:
            raise BundleError(
                f"{path}: tensor {name!r} has the type {found[name].dtype}, not {kind}. Get the "
                "bundle again."
            )
    scores, keys, values, means = (found[name] for name in _TYPES)
    beyond = np.abs(scores.astype(np.int64)).max() > HIGHEST_SCORE
    for invalid, what in (
        (
            beyond or scores[:, UNKNOWN_CODON:].any(),
            f"'scores' has a score beyond {HIGHEST_SCORE}, or of an unknown codon",
        ),
        ((keys[1:] <= keys[:-1]).any(), "'keys' is not in ascending order"),
        ((values >= N_VALUES).any(), f"'values' has a value from {N_VALUES} on"),
        (not ((means >= 0) & (means <= 1)).all(), "'means' has numbers that are not shares"),
    ):
        if invalid:
            raise BundleError(f"{path}: tensor {what}. Get the bundle again.")
    table = WordTable(keys, values)
    return GenesEncoder(spec.name, config.dim, config.view, letters_of, scores, table, means)


_TYPES = {"scores": "int16", "keys": "uint32", "values": "uint8", "means": "float32"}

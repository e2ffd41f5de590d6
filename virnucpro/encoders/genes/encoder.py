"""The encoder of genes: vectors of pieces of records, computed by NumPy on the CPU."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise

import numpy as np
from numpy.typing import NDArray

from virnucpro.arrays import Float32Array, IntArray
from virnucpro.encoders.base import EncoderSpec
from virnucpro.encoders.composition.encoder import LettersEncoder, letters_of
from virnucpro.encoders.genes.config import GenesConfig
from virnucpro.encoders.genes.evidence import cut
from virnucpro.encoders.genes.genes import Scores
from virnucpro.encoders.genes.inputs import vectors_of
from virnucpro.encoders.genes.words import Keys, WordTable, scan
from virnucpro.encoders.weights.shapes import stored_tensors
from virnucpro.errors import BundleError


@dataclass(frozen=True, slots=True)
class GenesEncoder(LettersEncoder):
    """Computes the vector of each piece of a batch."""

    scores: Scores
    table: WordTable
    means: Float32Array

    def launch(self, batch: list[bytes]) -> Callable[[], Float32Array]:
        """Return a function that returns the vectors, (n, dim) float32."""
        evidence, owner, keys = scan_pieces(batch, self.scores)
        words = self.table.count(owner, keys, len(batch))
        found = vectors_of(np.concatenate((evidence, words), axis=1), self.means)
        return lambda: found


def scan_pieces(
    pieces: Sequence[bytes], scores: Scores
) -> tuple[NDArray[np.int64], IntArray, Keys]:
    """Return the evidence of pieces, and the words of their genes.

    Returns
    -------
    tuple
        ``(n, DIM)`` int64, sums over the spans of each piece; ``(n_words,)`` number of the piece,
        and ``(n_words,)`` uint32 key of each word.
    """
    spans = [cut(one) for one in pieces]
    first = list(accumulate(map(len, spans), initial=0))
    found = scan([span for of in spans for span in of], scores)
    sums = np.array(
        [found.evidence[a:b].sum(axis=0, dtype=np.int64) for a, b in pairwise(first)], np.int64
    ).reshape(len(pieces), found.evidence.shape[1])
    piece = np.repeat(np.arange(len(pieces)), np.diff(first))
    return sums, piece[found.owner], found.keys


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
    table = WordTable(found["keys"], found["values"])
    return GenesEncoder(
        spec.name, config.dim, config.view, letters_of, found["scores"], table, found["means"]
    )


_TYPES = {"scores": "int16", "keys": "uint32", "values": "uint8", "means": "float32"}

"""Divisions of sequences into batches, which must not change their vectors."""

import numpy as np
import torch

from virnucpro.encoders.registry import load_encoder


def batchings(n):
    """Yield batches as indices: single, all together, reversed, in pairs, random."""
    yield [[i] for i in range(n)]
    yield [list(range(n))]
    yield [list(range(n))[::-1]]
    yield [list(range(i, min(i + 2, n))) for i in range(0, n, 2)]
    dice = np.random.default_rng(8)
    for _ in range(2):
        cuts = np.sort(dice.choice(np.arange(1, n), 3, replace=False))
        yield [part.tolist() for part in np.split(dice.permutation(n), cuts)]


def vectors_of(spec, sequences, **options):
    """Return the vectors of sequences in one batch; the options are those of `load_encoder`."""
    encoder = load_encoder(spec, **options)
    return encoder.encode(encoder.collate(encoder.tokenise(sequences)))


def encoded(encoder, batch, parts):
    """Return the vectors in the order of `batch`, encoded in parts."""
    vectors = torch.empty(len(batch), encoder.dim)
    for part in parts:
        vectors[part] = encoder.encode(encoder.collate([batch[i] for i in part]))
    return vectors

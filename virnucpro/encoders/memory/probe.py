"""How much fits, found by trying: batches of made-up sequences on the device itself."""

from collections.abc import Callable

import numpy as np

from virnucpro.encoders.encoder import Encoder
from virnucpro.encoders.memory.out_of_memory import Shortage, within_memory
from virnucpro.encoders.memory.token_budget import length_class

__all__ = ["fitting_budget", "holds", "probe"]

_MADE_UP = {"nucleotide": b"ACGTTGCA", "protein": b"LAGVSERTIDPKQNFYMHWC"}


def fitting_budget(fits: Callable[[int], bool], first: int, least: int, most: int) -> int:
    """Find a budget that fits by halving and doubling `first`.

    Returns
    -------
    int
        The largest of the values tried that fit, `most` or less; where none did, the last below
        `least`, of which only a single sequence can be tried.
    """
    tokens = first
    if fits(tokens):
        while 2 * tokens <= most and fits(2 * tokens):
            tokens *= 2
        return tokens
    while tokens > least:
        tokens //= 2
        if fits(tokens):
            break
    return tokens


def probe(encoder: Encoder, longest: int, first: int, most: int) -> int:
    """Try batches of made-up sequences of the class of `longest` tokens; see `fitting_budget`."""
    length = length_class(longest)
    return fitting_budget(
        lambda tokens: holds(encoder, length, tokens) is None, first, length, most
    )


def holds(encoder: Encoder, length: int, tokens: int) -> Shortage | None:
    """Try a batch of `tokens` tokens, made-up sequences of `length`, one at least.

    Returns
    -------
    What it was short of; None where it fits.
    """
    (ids,) = encoder.tokenise([_MADE_UP[encoder.view]])
    batch = [np.resize(ids, length)] * max(1, tokens // length)
    tried = within_memory(lambda: encoder.encode(encoder.collate(batch)).cpu())
    return tried if isinstance(tried, Shortage) else None

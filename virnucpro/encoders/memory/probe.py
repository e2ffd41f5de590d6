"""Search for the largest batch that fits, by encoding synthetic sequences on the device."""

from collections.abc import Callable

import numpy as np

from virnucpro.encoders.encoder import Encoder
from virnucpro.encoders.memory.out_of_memory import Shortage, within_memory
from virnucpro.encoders.memory.token_budget import length_class

__all__ = ["fitting_budget", "holds", "probe"]

_SYNTHETIC = {"nucleotide": b"ACGTTGCA", "protein": b"LAGVSERTIDPKQNFYMHWC"}


def fitting_budget(fits: Callable[[int], bool], first: int, least: int, most: int) -> int:
    """Find a budget that fits by doubling or halving `first`.

    Returns
    -------
    int
        The largest tested value that fits, at most `most`. If none does, the first value at or
        below `least`, which is a single sequence.
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
    """Find a budget with sequences of the length class of `longest`; see `fitting_budget`."""
    length = length_class(longest)
    return fitting_budget(
        lambda tokens: holds(encoder, length, tokens) is None, first, length, most
    )


def holds(encoder: Encoder, length: int, tokens: int) -> Shortage | None:
    """Encode a batch of `tokens` tokens: synthetic sequences of `length`, at least one.

    Returns
    -------
    The shortage, or None if the batch fits.
    """
    (ids,) = encoder.tokenise([_SYNTHETIC[encoder.view]])
    batch = [np.resize(ids, length)] * max(1, tokens // length)
    tried = within_memory(lambda: encoder.encode(encoder.collate(batch)).cpu())
    return tried if isinstance(tried, Shortage) else None

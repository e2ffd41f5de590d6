"""Which sequences go through an encoder together. Pure: lengths in, positions out."""

import numpy as np
import numpy.typing as npt

from virnucpro.encoders.base import IntArray
from virnucpro.errors import UsageError

__all__ = ["batches"]


def batches(lengths: npt.ArrayLike, max_tokens: int) -> list[IntArray]:
    """Group sequences of like length under a budget of padded tokens.

    Longest first; equal lengths keep their order. A batch takes as many as fit when each is padded
    to the batch's longest. A sequence that is longer than the budget goes alone.

    Parameters
    ----------
    lengths
        (n,) tokens of each sequence.
    max_tokens
        The budget: longest * count of a batch stays within it.

    Returns
    -------
    list of (k,) int64
        Positions in `lengths`, every one in exactly one batch. The same lengths give the same
        batches.

    Raises
    ------
    UsageError
        When `max_tokens` is below 1.
    """
    if max_tokens < 1:
        raise UsageError(f"a budget of {max_tokens} tokens holds no sequence; give at least 1")
    sizes = np.asarray(lengths, dtype=np.int64)
    order = np.argsort(-sizes, kind="stable").astype(np.int64, copy=False)
    groups = []
    start = 0
    while start < len(order):
        longest = max(1, int(sizes[order[start]]))
        count = max(1, max_tokens // longest)
        groups.append(order[start : start + count])
        start += count
    return groups

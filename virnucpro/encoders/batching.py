"""Which sequences go through an encoder together. Pure: lengths in, positions out."""

from collections.abc import Callable, Iterator

import numpy as np
import numpy.typing as npt

from virnucpro.encoders.base import IntArray
from virnucpro.errors import UsageError

__all__ = ["batches", "longest_first"]


def longest_first(lengths: npt.ArrayLike) -> IntArray:
    """Order sequences for batching: the longest first, equal lengths as they come.

    Parameters
    ----------
    lengths
        (n,) tokens of each sequence.

    Returns
    -------
    (n,) int64
        Positions in `lengths`.
    """
    sizes = np.asarray(lengths, dtype=np.int64)
    return np.argsort(-sizes, kind="stable").astype(np.int64, copy=False)


def batches(lengths: npt.ArrayLike, budget: Callable[[int], int]) -> Iterator[range]:
    """Cut sequences that stand longest first into batches, under a budget of padded tokens.

    A batch takes as many as fit when each is padded to the batch's longest. A sequence that is
    longer than the budget goes alone. The budget is asked for anew at each batch, once those before
    it are done: what is learned from one holds for the next.

    Parameters
    ----------
    lengths
        (n,) tokens of each sequence, descending.
    budget
        Length of a batch's longest -> what longest * count stays within.

    Yields
    ------
    range
        Positions in `lengths`, every one in exactly one batch, ascending.

    Raises
    ------
    UsageError
        When a budget is below 1.
    """
    sizes = np.asarray(lengths, dtype=np.int64)
    start = 0
    while start < len(sizes):
        longest = max(1, int(sizes[start]))
        max_tokens = budget(longest)
        if max_tokens < 1:
            raise UsageError(f"a budget of {max_tokens} tokens holds no sequence; give at least 1")
        stop = min(len(sizes), start + max(1, max_tokens // longest))
        yield range(start, stop)
        start = stop

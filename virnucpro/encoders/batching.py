"""Which sequences go through an encoder together. Pure: lengths in, positions out.

Batches are cut out of one order, the longest first. That order depends on the lengths alone: what
is known of a row by its position holds in every attempt, whatever budgets were learnt in between.
Nothing is padded, so a batch that is not full costs nothing but its share of what a batch costs at
all; equal lengths standing together saves more than full batches would (decision 0041).
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from virnucpro.encoders.base import IntArray
from virnucpro.errors import UsageError

__all__ = ["Filling", "batches", "longest_first"]


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
    """Cut sequences that stand longest first into batches, under a budget of tokens.

    A batch takes as many as fit. A sequence that is longer than the budget goes alone. The budget
    is asked for anew at each batch, once those before it are done: what is learned from one holds
    for the next.

    Parameters
    ----------
    lengths
        (n,) tokens of each sequence, descending.
    budget
        Length of a batch's longest -> tokens of a batch.

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
    ends = np.cumsum(sizes)
    start = 0
    while start < len(sizes):
        max_tokens = budget(max(1, int(sizes[start])))
        if max_tokens < 1:
            raise UsageError(f"a budget of {max_tokens} tokens holds no sequence; give at least 1")
        before = ends[start] - sizes[start]
        stop = int(np.searchsorted(ends, before + max_tokens, side="right"))
        stop = max(stop, start + 1)
        yield range(start, stop)
        start = stop


@dataclass(frozen=True, slots=True)
class Filling:
    """How full batches were.

    Attributes
    ----------
    batches
        How many.
    tokens
        Of all sequences in them.
    room
        Tokens that they would have held: their budgets, or the sequence alone that was longer.
    """

    batches: int = 0
    tokens: int = 0
    room: int = 0

    def after(self, tokens: int, budget: int) -> "Filling":
        """Count one batch more."""
        return self + Filling(1, tokens, max(tokens, budget))

    def __add__(self, other: "Filling") -> "Filling":
        return Filling(
            self.batches + other.batches, self.tokens + other.tokens, self.room + other.room
        )

    @property
    def unused(self) -> float:
        """Give the share of the room that was left empty."""
        return 1 - self.tokens / self.room if self.room else 0.0

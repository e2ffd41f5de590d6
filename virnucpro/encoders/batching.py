"""Batch planning: lengths in, positions out.

Batches are cut from one order, the longest sequence first. The order depends on the lengths only,
so a row's position is valid in every attempt, whatever budgets were learned in between. Nothing is
padded, and the batches are of even size (decision 0041).
"""

from bisect import bisect_left
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from virnucpro.encoders.base import IntArray
from virnucpro.errors import UsageError

__all__ = ["Filling", "batches", "longest_first"]


def longest_first(lengths: npt.ArrayLike) -> IntArray:
    """Return the order for batching: the longest first, equal lengths in input order.

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
    """Cut sequences, sorted longest first, into batches under a token budget.

    The number of batches is minimal for the budget, and the largest batch is as small as this
    number allows. A sequence longer than the budget is a batch of its own. Each batch asks for the
    current budget.

    Parameters
    ----------
    lengths
        (n,) tokens of each sequence, descending.
    budget
        Returns the tokens of a batch for the length of its longest sequence.

    Yields
    ------
    range
        Positions in `lengths`, each in exactly one batch, ascending.

    Raises
    ------
    UsageError
        If a budget is below 1.
    """
    ends = np.concatenate([[0], np.cumsum(np.asarray(lengths, dtype=np.int64))])
    start, asked, even = 0, 0, 0
    while start < len(ends) - 1:
        max_tokens = budget(max(1, int(ends[start + 1] - ends[start])))
        if max_tokens < 1:
            raise UsageError(f"the token budget is {max_tokens}; it must be at least 1")
        if max_tokens != asked:
            asked, even = max_tokens, _even(ends, start, max_tokens)
        stop = _stop(ends, start, even)
        yield range(start, stop)
        start = stop


def _even(ends: IntArray, start: int, max_tokens: int) -> int:
    """Return the smallest budget that needs no more batches for the rest than `max_tokens`."""
    fewest = _count(ends, start, max_tokens)
    longest, total = int(ends[start + 1] - ends[start]), int(ends[-1] - ends[start])
    low = min(max_tokens, max(longest, -(-total // fewest)))
    return low + bisect_left(
        range(low, max_tokens), 1, key=lambda tokens: _count(ends, start, tokens) <= fewest
    )


def _count(ends: IntArray, start: int, max_tokens: int) -> int:
    """Count the batches of the rest if each is filled."""
    n = 0
    while start < len(ends) - 1:
        start = _stop(ends, start, max_tokens)
        n += 1
    return n


def _stop(ends: IntArray, start: int, max_tokens: int) -> int:
    """Return the end of a batch: all sequences that fit, at least one."""
    fitting = int(np.searchsorted(ends, ends[start] + max_tokens, side="right")) - 1
    return max(fitting, start + 1)


@dataclass(frozen=True, slots=True)
class Filling:
    """Use of the token budgets by batches.

    Attributes
    ----------
    batches
        Number of batches.
    tokens
        Sum of their tokens.
    room
        Sum of their budgets; of a single sequence above the budget, its length.
    """

    batches: int = 0
    tokens: int = 0
    room: int = 0

    def after(self, tokens: int, budget: int) -> "Filling":
        """Add a batch."""
        return self + Filling(1, tokens, max(tokens, budget))

    def __add__(self, other: "Filling") -> "Filling":
        return Filling(
            self.batches + other.batches, self.tokens + other.tokens, self.room + other.room
        )

    @property
    def unused(self) -> float:
        """Unused share of the budgets."""
        return 1 - self.tokens / self.room if self.room else 0.0

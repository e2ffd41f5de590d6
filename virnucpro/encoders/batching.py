"""Which sequences go through an encoder together. Pure: lengths in, positions out.

Batches are cut out of one order, the longest first. That order depends on the lengths alone: what
is known of a row by its position holds in every attempt, whatever budgets were learnt in between.
Nothing is padded, so nothing is computed for what is unused; what is left at the end is spread
evenly, so that no device gets a crumb (decision 0041).
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

    There are as few batches as the budget allows, and they are as even as their order allows: the
    largest is as small as it can be. A sequence that is longer than the budget goes alone. The
    budget is asked for anew when a batch is drawn: what has been learnt by then holds for it.

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
    ends = np.cumsum(np.asarray(lengths, dtype=np.int64))
    start, asked, even = 0, 0, 0
    while start < len(ends):
        max_tokens = budget(max(1, int(ends[start]) - _before(ends, start)))
        if max_tokens < 1:
            raise UsageError(f"a budget of {max_tokens} tokens holds no sequence; give at least 1")
        if max_tokens != asked:
            asked, even = max_tokens, _even(ends, start, max_tokens)
        stop = _stop(ends, start, even)
        yield range(start, stop)
        start = stop


def _even(ends: IntArray, start: int, max_tokens: int) -> int:
    """Find the least budget that makes no more batches of the rest than `max_tokens` does."""
    most = _count(ends, start, max_tokens)
    longest = int(ends[start]) - _before(ends, start)
    total = int(ends[-1]) - _before(ends, start)
    low, high = min(max_tokens, max(longest, -(-total // most))), max_tokens
    while low < high:
        middle = (low + high) // 2
        if _count(ends, start, middle) <= most:
            high = middle
        else:
            low = middle + 1
    return high


def _count(ends: IntArray, start: int, max_tokens: int) -> int:
    """Count the batches of the rest if each takes as many as fit."""
    n = 0
    while start < len(ends):
        start = _stop(ends, start, max_tokens)
        n += 1
    return n


def _stop(ends: IntArray, start: int, max_tokens: int) -> int:
    """Give the position behind the last that fits into a batch, one sequence at least."""
    fitting = int(np.searchsorted(ends, _before(ends, start) + max_tokens, side="right"))
    return max(fitting, start + 1)


def _before(ends: IntArray, start: int) -> int:
    """Count the tokens of all sequences before one."""
    return int(ends[start - 1]) if start else 0


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

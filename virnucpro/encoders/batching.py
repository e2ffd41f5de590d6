"""Divide sequences into batches by length. Does not import torch.

A token budget is the maximum number of tokens in a batch.

Sequences are sorted longest first, then cut into batches. The order depends on the lengths only, so
a sequence has the same position in this order after a restart, even if budgets changed. Sequences
are not padded, and the batches of one budget have similar sizes (decision 0041).

The rounding of a vector depends on its batch. Therefore budgets are powers of two: devices of one
model then use equal batches. A budget is lowered after out-of-memory errors.
"""

from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from virnucpro.arrays import IntArray
from virnucpro.errors import UsageError


def longest_first(lengths: npt.ArrayLike) -> IntArray:
    """Return the positions of sequences by length: longest first, equal lengths in input order.

    Parameters
    ----------
    lengths
        (n,) tokens of each sequence.

    Returns
    -------
    (n,) int64
        Positions in `lengths`, in the new order.
    """
    sizes = np.asarray(lengths, dtype=np.int64)
    return np.argsort(-sizes, kind="stable").astype(np.int64, copy=False)


def batches(lengths: npt.ArrayLike, budget: Callable[[int], int]) -> Iterator[range]:
    """Cut sequences, sorted longest first, into batches under a token budget.

    The number of batches is minimal for the budget, and the largest batch is as small as this
    number allows. A sequence longer than the budget is a batch of its own. `budget` is called for
    each batch, so its result may change between two batches.

    Parameters
    ----------
    lengths
        (n,) tokens of each sequence, descending.
    budget
        Function that returns the token budget of a batch. Its argument is the number of tokens
        in the longest sequence of the batch.

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


def batches_by_length(lengths: npt.ArrayLike, max_tokens: int) -> list[IntArray]:
    """Return the positions of the sequences of each batch, longest first.

    Parameters
    ----------
    lengths
        (n,) tokens of each sequence, in any order.
    max_tokens
        Token budget of all batches.
    """
    sizes, order = np.asarray(lengths, dtype=np.int64), longest_first(lengths)
    cut = batches(sizes[order], lambda _: max_tokens)
    return [order[batch.start : batch.stop] for batch in cut]


def _even(ends: IntArray, start: int, max_tokens: int) -> int:
    """Return the smallest budget that gives no more batches than the budget `max_tokens`.

    The batches contain the sequences from `start` on; see `_stop` for `ends`.
    """
    fewest = _count(ends, start, max_tokens)
    longest, total = int(ends[start + 1] - ends[start]), int(ends[-1] - ends[start])
    low = min(max_tokens, max(longest, -(-total // fewest)))
    return low + bisect_left(
        range(low, max_tokens), 1, key=lambda tokens: _count(ends, start, tokens) <= fewest
    )


def _count(ends: IntArray, start: int, max_tokens: int) -> int:
    """Return the number of batches for the sequences from `start` at budget `max_tokens`.

    See `_stop` for `ends`.
    """
    n = 0
    while start < len(ends) - 1:
        start = _stop(ends, start, max_tokens)
        n += 1
    return n


def _stop(ends: IntArray, start: int, max_tokens: int) -> int:
    """Return the end of the batch that begins at `start`: the position after its last sequence.

    ``ends[i]`` is the number of tokens in the first i sequences.
    """
    fitting = int(np.searchsorted(ends, ends[start] + max_tokens, side="right")) - 1
    return max(fitting, start + 1)


@dataclass(frozen=True, slots=True)
class Filling:
    """Statistics of batches: the use of their token budgets.

    Attributes
    ----------
    batches
        Number of batches.
    tokens
        Number of tokens in all batches.
    room
        Sum of the token budgets of all batches. A batch of one sequence above its budget counts
        with the length of the sequence instead.
    """

    batches: int = 0
    tokens: int = 0
    room: int = 0

    def after(self, tokens: int, budget: int) -> "Filling":
        """Return new statistics that also include a batch of `tokens` tokens under `budget`."""
        return self + Filling(1, tokens, max(tokens, budget))

    def __add__(self, other: "Filling") -> "Filling":
        return Filling(
            self.batches + other.batches, self.tokens + other.tokens, self.room + other.room
        )

    @property
    def unused(self) -> float:
        """Unused fraction of the token budgets, from 0 to 1."""
        return 1 - self.tokens / self.room if self.room else 0.0


BATCH_TOKENS: Final[Mapping[str, int]] = {"cpu": 2_048, "cuda": 16_384}
"""Initial token budget by kind of device.

CPU: measured, 8,192 is 10 to 20 % slower with one thread (ESM-2 35M). GPU: an assumption, which
`probe` doubles or halves.
"""

MOST_TOKENS: Final = 65_536
"""Budget at which `probe` stops doubling. An assumption: this many tokens keep the fastest GPUs
busy between batches.
"""


def length_class(length: int) -> int:
    """Return `length`, rounded up to a power of two: 512 for 257 to 512."""
    return 1 << max(0, length - 1).bit_length()


class TokenBudget:
    """Initial token budget of one encoder's batches, and lower budgets by length class.

    A length class is a sequence length, rounded up to a power of two.

    Parameters
    ----------
    first
        Initial budget in tokens.

    Attributes
    ----------
    probed
        Whether `probe` has measured the initial budget.
    longest_fitted
        Tokens of the longest sequence that was encoded without an out-of-memory error; 0 if
        unknown.
    """

    def __init__(self, first: int) -> None:
        self._first = first
        self.probed = False
        self.longest_fitted = 0
        self._limits: dict[int, int] = {}

    def __call__(self, longest: int) -> int:
        """Return the token budget of a batch whose longest sequence has `longest` tokens.

        A lowered budget of a length class also applies to longer sequences, because their attention
        needs more memory.
        """
        own = length_class(longest)
        return min([self._first, *(n for size, n in self._limits.items() if size <= own)])

    def fitted(self, longest: int) -> None:
        """Record that a batch fitted into memory; its longest sequence has `longest` tokens."""
        self.longest_fitted = max(self.longest_fitted, longest)

    def lower(self, longest: int, tokens: int) -> None:
        """Lower the budget after a batch of `tokens` tokens did not fit into memory.

        The longest sequence of this batch has `longest` tokens.
        """
        below = max(1, length_class(tokens) // 2)
        self._limits[length_class(longest)] = min(self(longest), below)

    def begin_with(self, longest: int, tokens: int) -> None:
        """Store `tokens`, the token budget that `probe` found with sequences of `longest` tokens.

        A budget of at least the initial budget applies to all lengths. A smaller budget applies to
        the length class of `longest` and to longer sequences.
        """
        self.probed = True
        if tokens >= self._first:
            self._first = tokens
        else:
            self._limits[length_class(longest)] = tokens

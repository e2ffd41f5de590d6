"""Batches and their token budgets: lengths in, positions out. Needs no torch.

Batches are cut from one order, the longest sequence first. The order depends on the lengths only,
so a row's position is valid in every attempt, whatever budgets were learnt in between. Nothing is
padded, and the batches are of even size (decision 0041).

Budgets are powers of two, so that devices of one model use equal batches: the last bits of a vector
depend on its batch. A budget is lowered after out-of-memory errors.
"""

from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from virnucpro.encoders.base import IntArray
from virnucpro.errors import UsageError

__all__ = [
    "BATCH_TOKENS",
    "MOST_TOKENS",
    "Filling",
    "TokenBudget",
    "batches",
    "is_fitted",
    "length_class",
    "longest_first",
]


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


BATCH_TOKENS: Final[Mapping[str, int]] = {"cpu": 2_048, "cuda": 16_384}
"""First budget by kind of device.

CPU: measured, 8,192 is 10 to 20 % slower with one thread (ESM-2 35M). GPU: an assumption, from
which `probe` doubles or halves.
"""

MOST_TOKENS: Final = 65_536
"""Budget at which `probe` stops doubling. An assumption: this many tokens keep the fastest GPUs
busy between batches.
"""

_FITTED: Final = "fitted"
"""Replaces the length class in the key of `TokenBudget.learnt` for the longest fitting sequence."""


def is_fitted(key: str) -> bool:
    """Return whether a key of `TokenBudget.learnt` is that of the longest fitting sequence."""
    return key.endswith(f"/{_FITTED}")


def length_class(length: int) -> int:
    """Round a length up to a power of two: 512 for 257 to 512."""
    return 1 << max(0, length - 1).bit_length()


class TokenBudget:
    """Token budget of one encoder's batches, by length class.

    Parameters
    ----------
    name
        Name of the encoder.
    first
        First budget.
    learnt
        `learnt` of earlier budgets, of any encoders.

    Attributes
    ----------
    known
        Whether the first budget was found by `probe`.
    longest_fitted
        Tokens of the longest sequence that ever fitted; 0 if none did.
    """

    def __init__(self, name: str, first: int, learnt: Mapping[str, int]) -> None:
        self._name = name
        self._first = learnt.get(name, first)
        self.known = name in learnt
        self.longest_fitted = learnt.get(f"{name}/{_FITTED}", 0)
        self._was_short = self.longest_fitted > 0
        by_class = (key.rpartition("/") for key in learnt)
        self._limits = {
            int(size): learnt[f"{owner}/{size}"]
            for owner, _, size in by_class
            if owner == name and size.isdecimal()
        }

    def __call__(self, longest: int) -> int:
        """Return the budget of a batch with a longest sequence of this many tokens.

        A limit at one length class applies to all longer ones: attention needs more there.
        """
        own = length_class(longest)
        return min([self._first, *(n for size, n in self._limits.items() if size <= own)])

    @property
    def learnt(self) -> dict[str, int]:
        """Tokens by encoder or encoder/length class, as plain data for the next start.

        After a shortage, also the longest fitting sequence, by encoder/``fitted``.
        """
        limits = {f"{self._name}/{size}": n for size, n in sorted(self._limits.items())}
        if self._was_short and self.longest_fitted:
            limits[f"{self._name}/{_FITTED}"] = self.longest_fitted
        return ({self._name: self._first} if self.known else {}) | limits

    def fitted(self, longest: int) -> None:
        """Record that a batch with a sequence of this many tokens fitted."""
        self.longest_fitted = max(self.longest_fitted, longest)

    def was_short(self) -> None:
        """Record a shortage of any batch, even of a single sequence."""
        self._was_short = True

    def lower(self, longest: int, tokens: int) -> None:
        """Lower the budget after a batch of `tokens` with a sequence of `longest` did not fit."""
        below = max(1, length_class(tokens) // 2)
        self._limits[length_class(longest)] = min(self(longest), below)

    def begin_with(self, longest: int, tokens: int) -> None:
        """Set the budget that `probe` found with sequences of `longest` tokens.

        A larger budget than the first applies to all lengths, a smaller one to this class only.
        """
        self.known = True
        if tokens >= self._first:
            self._first = tokens
        else:
            self._limits[length_class(longest)] = tokens

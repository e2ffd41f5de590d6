"""Token budgets of batches: a first budget, lowered after out-of-memory errors. Needs no torch.

Budgets are powers of two, so that devices of one model use equal batches: the last bits of a vector
depend on its batch.
"""

from collections.abc import Mapping
from typing import Final

__all__ = ["BATCH_TOKENS", "MOST_TOKENS", "TokenBudget", "is_fitted", "length_class"]

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

"""How many tokens an encoder takes at once: a first budget, and what running out of memory taught.

Everything is in powers of two of tokens, so that devices of one kind come to the same
batches, whose composition the last bits of every vector depend on. Light to import.
"""

from collections.abc import Mapping
from typing import Final

__all__ = ["BATCH_TOKENS", "MOST_TOKENS", "TokenBudget", "is_fitted", "length_class"]

BATCH_TOKENS: Final[Mapping[str, int]] = {"cpu": 2_048, "cuda": 16_384}
"""Tokens of a batch of which nothing has been learnt, by kind of device.

On a CPU that is measured: with 8,192 one thread is 10 to 20 % slower (ESM-2 35M). On a GPU it is an
assumption, and no more than where `probe` begins to double or to halve.
"""

MOST_TOKENS: Final = 65_536
"""The budget at which `probe` stops doubling. An assumption, measured on no GPU: that with so many
tokens even one of the fastest has enough to do, and waits for nothing between batches.
"""

_FITTED: Final = "fitted"
"""Stands in place of a length class where `learnt` tells the longest sequence that has fitted."""


def is_fitted(key: str) -> bool:
    """Tell whether a key of `TokenBudget.learnt` is of the longest that fitted, not of a budget."""
    return key.endswith(f"/{_FITTED}")


def length_class(length: int) -> int:
    """Give the power of two that `length` tokens reach up to: 512 for 257 to 512."""
    return 1 << max(0, length - 1).bit_length()


class TokenBudget:
    """The budget of one encoder's batches, by length class. Call it with a batch's longest.

    Parameters
    ----------
    name
        The encoder's.
    first
        Tokens of a batch of which nothing has been learnt.
    learnt
        What `learnt` of an earlier budget gave, of any encoders.

    Attributes
    ----------
    known
        Whether the first budget was found by trial.
    longest_fitted
        Tokens of the longest sequence that has fitted, ever; 0 where none has.
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
        """Give the budget of a batch whose longest sequence has so many tokens.

        What does not fit at one length does not at a greater one, where attention costs more.
        """
        own = length_class(longest)
        return min([self._first, *(n for size, n in self._limits.items() if size <= own)])

    @property
    def learnt(self) -> dict[str, int]:
        """Encoder, or encoder/length class -> tokens: plain data for the next start.

        And encoder/``fitted``, once memory was short: whoever starts then knows what had fitted.
        """
        limits = {f"{self._name}/{size}": n for size, n in sorted(self._limits.items())}
        if self._was_short and self.longest_fitted:
            limits[f"{self._name}/{_FITTED}"] = self.longest_fitted
        return ({self._name: self._first} if self.known else {}) | limits

    def fitted(self, longest: int) -> None:
        """Learn that a batch with a sequence of so many tokens fitted."""
        self.longest_fitted = max(self.longest_fitted, longest)

    def was_short(self) -> None:
        """Learn that memory was short of something, if only of a single sequence."""
        self._was_short = True

    def lower(self, longest: int, tokens: int) -> None:
        """Learn that a batch of so many `tokens`, `longest` of them one sequence's, did not fit."""
        below = max(1, length_class(tokens) // 2)
        self._limits[length_class(longest)] = min(self(longest), below)

    def begin_with(self, longest: int, tokens: int) -> None:
        """Take over what a probe found to fit with sequences of `longest` tokens.

        More than the first budget holds for all lengths; less, for such long ones alone.
        """
        self.known = True
        if tokens >= self._first:
            self._first = tokens
        else:
            self._limits[length_class(longest)] = tokens

"""Count repeated values, such as the hashes of names, in an array that is larger than memory."""

from collections.abc import Iterator
from typing import Final, NamedTuple

import numpy as np

from virnucpro.sequences.windows import IntArray

__all__ = ["Repeats", "count_repeats"]

_AT_ONCE: Final = 1 << 27
"""Values that are sorted at once; 16 bytes of memory each."""
_BLOCK: Final = 1 << 22


class Repeats(NamedTuple):
    """Number of values that equal an earlier value, and position of the first repeated value.

    `position` is the earliest position of a value that occurs again, -1 if there is none.
    """

    number: int
    position: int


def count_repeats(values: IntArray, at_once: int = _AT_ONCE) -> Repeats:
    """Count the values that equal an earlier value.

    Parameters
    ----------
    values
        ``(n,)`` int64, evenly distributed hashes; may be memory-mapped.
    at_once
        Number of values in memory; the array is read once for each such part.
    """
    n_parts = max(1, -(-len(values) // at_once))
    count, first = 0, len(values)
    for part in range(n_parts):
        chosen = np.sort(
            np.concatenate(
                [
                    np.empty(0, np.int64),
                    *(block[block % n_parts == part] for _, block in _blocks(values)),
                ]
            )
        )
        again = chosen[1:][chosen[1:] == chosen[:-1]]
        count += len(again)
        if len(again):
            first = min(first, _first_of(values, np.unique(again)))
    return Repeats(count, first if count else -1)


def _first_of(values: IntArray, wanted: IntArray) -> int:
    for start, block in _blocks(values):
        found = np.flatnonzero(np.isin(block, wanted))
        if len(found):
            return start + int(found[0])
    return len(values)


def _blocks(values: IntArray) -> Iterator[tuple[int, IntArray]]:
    for start in range(0, len(values), _BLOCK):
        yield start, values[start : start + _BLOCK]

"""The rows of one unit as an encoder reads them."""

from collections.abc import Sequence

import numpy as np

from virnucpro.encoders.base import IntArray
from virnucpro.encoders.batching import longest_first

__all__ = ["UnitTokens"]


class UnitTokens:
    """Token ids of a unit's rows, and the order in which they are encoded.

    Attributes
    ----------
    unit
        The unit's number.
    ids
        Token ids of each row.
    lengths
        (n,) int64, tokens of each row.
    order
        (n,) int64: the rows, longest first. A `Place` counts along it.
    """

    def __init__(self, unit: int, ids: Sequence[IntArray]) -> None:
        self.unit = unit
        self.ids = ids
        self.lengths = np.array([len(row) for row in ids], np.int64)
        self.order = longest_first(self.lengths)

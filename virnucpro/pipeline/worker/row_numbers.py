"""Vectors and scores of the rows of a unit, and the rows whose numbers cannot be stored."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from virnucpro.store.schema import OVERFLOW
from virnucpro.store.segment_checks import finite_rows

__all__ = ["RowNumbers", "unstorable_rows"]


class RowNumbers(NamedTuple):
    """Vectors and scores of n rows.

    Attributes
    ----------
    vectors
        Name and vectors, (n, dim) float32, of each encoder, in the order of the run.
    stored
        (n, D) float16 or float32, the joined vectors as stored; None if no vectors are stored.
    scores
        (n, 2) float32; None without a classifier.
    owners
        (vectors,) int64, row of each vector; None if each row has one vector.
    """

    vectors: Sequence[tuple[str, NDArray[np.float32]]]
    stored: NDArray[np.floating] | None
    scores: NDArray[np.float32] | None
    owners: NDArray[np.int64] | None = None

    def owner(self, vector: int) -> int:
        """Return the row of a vector."""
        return vector if self.owners is None else int(self.owners[vector])


def unstorable_rows(numbers: RowNumbers) -> dict[int, str]:
    """Return a description of the error for each row with numbers that cannot be stored."""
    found: dict[int, str] = {}
    for name, values in numbers.vectors:
        for row in np.flatnonzero(~finite_rows(values)).tolist():
            bad = np.count_nonzero(~np.isfinite(values[row]))
            evidence = (
                f"{bad} of {values.shape[1]} numbers of the {name} vector are NaN or infinite"
            )
            found.setdefault(numbers.owner(row), f"not_finite: {evidence}")
    if numbers.stored is not None:
        for row in np.flatnonzero(~finite_rows(numbers.stored)).tolist():
            largest = max(float(np.abs(values[row]).max()) for _, values in numbers.vectors)
            evidence = (
                f"the vector has numbers up to {largest:.3g}, too large for "
                f"{numbers.stored.dtype} (start a new run with --embeddings fp32)"
            )
            found.setdefault(numbers.owner(row), f"{OVERFLOW}: {evidence}")
    if numbers.scores is not None:
        for row in np.flatnonzero(~finite_rows(numbers.scores)).tolist():
            found.setdefault(row, "not_finite: a score of the classifier is NaN or infinite")
    return found

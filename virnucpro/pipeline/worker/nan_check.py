"""Which rows have a number that is not finite, and what the evidence is."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from virnucpro.store.schema import OVERFLOW
from virnucpro.store.segment import finite_rows

__all__ = ["RowNumbers", "problems"]


@dataclass(frozen=True, slots=True)
class RowNumbers:
    """All that was computed of some rows.

    Attributes
    ----------
    vectors
        (encoder's name, (n, dim) float32) of each encoder, in the order of the run.
    stored
        (n, D) as it will be stored, float16 or float32; None where no vector is.
    scores
        (n, 2) float32; None where there is no head.
    """

    vectors: Sequence[tuple[str, NDArray[np.float32]]]
    stored: NDArray[np.floating] | None
    scores: NDArray[np.float32] | None


def problems(numbers: RowNumbers) -> dict[int, str]:
    """Tell of each row that cannot be stored as it is what is wrong with it.

    Returns
    -------
    dict of int to str
        Row, counted from 0 -> the first check that it fails: ``reason: evidence``.
    """
    found: dict[int, str] = {}
    for name, values in numbers.vectors:
        for row in _not_finite(values, found):
            bad = np.count_nonzero(~np.isfinite(values[row]))
            found[row] = (
                f"not_finite: {name} gave a vector with {bad} of {values.shape[1]} numbers not "
                "finite"
            )
    if numbers.stored is not None:
        for row in _not_finite(numbers.stored, found):
            largest = max(float(np.abs(values[row]).max()) for _, values in numbers.vectors)
            found[row] = (
                f"{OVERFLOW}: its vector has numbers up to {largest:.3g}, more than "
                f"{numbers.stored.dtype} stores (a new run with --embeddings fp32 keeps it)"
            )
    if numbers.scores is not None:
        for row in _not_finite(numbers.scores, found):
            found[row] = "not_finite: the head gave a score that is not finite"
    return found


def _not_finite(values: NDArray[np.floating], found: Mapping[int, str]) -> Sequence[int]:
    bad: list[int] = np.flatnonzero(~finite_rows(values)).tolist()
    return [row for row in bad if row not in found]

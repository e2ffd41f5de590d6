"""Comparison of two segments of one unit, computed at different times or on other machines."""

import numpy as np
import numpy.typing as npt

from virnucpro.store.schema import RowState
from virnucpro.store.segment import Segment

__all__ = ["ROUNDING", "difference"]

ROUNDING = 0.02
"""Maximum difference of two copies: of vectors relative to their length, of scores absolute.

Measured with `mini`: vectors differ by 0.0005 of their length between batch sizes at bf16, by 0.005
between bf16 and fp32 (scores: by 0.013), and by 0.18 from the most similar vector of another row.
"""


def difference(one: Segment, other: Segment) -> str:
    """Return the first difference of two segments beyond `ROUNDING`; "" without one.

    The texts of reasons may differ.
    """
    if not np.array_equal(one.rows, other.rows):
        return "different rows"
    if not np.array_equal(one.state, other.state):
        row = one.rows[(one.state != other.state).argmax()]
        return f"different states of row {row:,}"
    done = np.flatnonzero(one.state == RowState.DONE)
    for name, left, right in (
        ("embeddings", one.embeddings, other.embeddings),
        ("scores", one.scores, other.scores),
    ):
        if _shape(left) != _shape(right):
            return f"{name} of different shapes or types"
        if left is not None and right is not None:
            far = done[_distances(left, right, done, relative=name == "embeddings") > ROUNDING]
            if far.size:
                return f"different {name} of {len(far):,} rows, first row {one.rows[far[0]]:,}"
    return ""


def _shape(values: npt.NDArray[np.floating] | None) -> object:
    return None if values is None else (values.shape, values.dtype)


def _distances(
    left: npt.NDArray[np.floating],
    right: npt.NDArray[np.floating],
    rows: npt.NDArray[np.int64],
    *,
    relative: bool,
) -> npt.NDArray[np.float64]:
    """Return the distance of each row: relative to the longer vector, or the largest difference."""
    one, other = left[rows].astype(np.float64), right[rows].astype(np.float64)
    distances: npt.NDArray[np.float64] = np.abs(one - other).max(axis=1, initial=0)
    if relative:
        lengths = np.maximum(np.linalg.norm(one, axis=1), np.linalg.norm(other, axis=1))
        distances = np.linalg.norm(one - other, axis=1) / np.maximum(lengths, np.finfo(float).tiny)
    return distances

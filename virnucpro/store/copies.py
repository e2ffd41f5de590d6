"""Whether two segments of one unit, made at different times or places, say the same."""

import numpy as np
import numpy.typing as npt

from virnucpro.store.schema import RowState
from virnucpro.store.segment import Segment

__all__ = ["ROUNDING", "difference"]

ROUNDING = 0.02
"""How far two copies may differ: a vector by this share of its length, a score by this much.

Measured with `mini`: 0.0005 of a vector's length between batches of other sizes in bf16, 0.005
between bf16 and fp32 (scores: 0.013), 0.18 between a vector and that of the most similar other row.
"""

_ROWS_AT_ONCE = 256


def difference(one: Segment, other: Segment) -> str:
    """Say what two segments of the same rows tell differently, beyond `ROUNDING`.

    The texts of reasons may differ.

    Returns
    -------
    str
        Empty where either may stand for the other.
    """
    if not np.array_equal(one.rows, other.rows):
        return "other rows"
    if not np.array_equal(one.state, other.state):
        row = one.rows[(one.state != other.state).argmax()]
        return f"another state of row {row:,}"
    done = np.flatnonzero(one.state == RowState.DONE)
    for name, left, right in (
        ("embeddings", one.embeddings, other.embeddings),
        ("scores", one.scores, other.scores),
    ):
        if _shape(left) != _shape(right):
            return f"{name} of another shape or type"
        if left is not None and right is not None:
            far = done[_distances(left, right, done, relative=name == "embeddings") > ROUNDING]
            if far.size:
                return f"other {name} of {len(far):,} rows, the first of them {one.rows[far[0]]:,}"
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
    """Measure how far the rows are apart: by the longer vector's length, or by the largest step."""
    distances = np.empty(len(rows))
    for first in range(0, len(rows), _ROWS_AT_ONCE):
        part = rows[first : first + _ROWS_AT_ONCE]
        these, those = left[part].astype(np.float64), right[part].astype(np.float64)
        apart = these - those
        if relative:
            length = np.linalg.norm([these, those], axis=2).max(axis=0)
            found = np.linalg.norm(apart, axis=1) / np.maximum(length, np.finfo(float).tiny)
        else:
            found = np.abs(apart).max(axis=1)
        distances[first : first + _ROWS_AT_ONCE] = found
    return distances

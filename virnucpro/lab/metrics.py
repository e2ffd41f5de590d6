"""Ranking and calibration of weighted, labelled scores, for one or many vectors of weights."""

from typing import Final, NamedTuple

import numpy as np

from virnucpro.arrays import BoolArray, FloatArray, IntArray

BINS: Final = 10
"""Number of equal bins of the probability."""


class Curve(NamedTuple):
    """Figures of all thresholds, from the highest one on; the first entry stands for no call.

    Attributes
    ----------
    recall, false_positives, precision
        ``(..., n_thresholds + 1)``.
    """

    recall: FloatArray
    false_positives: FloatArray
    precision: FloatArray

    @property
    def area(self) -> FloatArray:
        """Area under recall over false positives: the AUROC."""
        height = (self.recall[..., 1:] + self.recall[..., :-1]) / 2
        found: FloatArray = (height * np.diff(self.false_positives)).sum(axis=-1)
        return found


def ranked(scores: FloatArray, viral: BoolArray, weights: FloatArray) -> Curve:
    """Return the curve of all thresholds.

    Parameters
    ----------
    scores, viral
        ``(n,)``.
    weights
        ``(..., n)``; both classes have weight.
    """
    order = np.argsort(-scores, kind="stable")
    ends = np.append(np.flatnonzero(np.diff(scores[order])), len(order) - 1)
    hits, alarms = (
        np.cumsum(weights[..., order] * side, axis=-1)[..., ends]
        for side in (viral[order], ~viral[order])
    )
    precision = hits / np.maximum(hits + alarms, np.finfo(np.float64).tiny)
    first = [(0, 0)] * (weights.ndim - 1) + [(1, 0)]
    return Curve(
        np.pad(hits / hits[..., -1:], first),
        np.pad(alarms / alarms[..., -1:], first),
        np.pad(precision, first, constant_values=1.0),
    )


def auroc(scores: FloatArray, viral: BoolArray, weights: FloatArray) -> FloatArray:
    """Return the weighted probability that a viral sequence scores higher than another one.

    Parameters
    ----------
    weights
        ``(..., n)``; the result has the shape of the leading dimensions.
    """
    return ranked(scores, viral, weights).area


def bin_of(probability: FloatArray) -> IntArray:
    """Return the bin of each probability, from 0 to `BINS` - 1; -1 for NaN."""
    known = ~np.isnan(probability)
    bins = np.clip((np.where(known, probability, 0) * BINS).astype(np.int64), 0, BINS - 1)
    return np.where(known, bins, -1)


def calibration_error(probability: FloatArray, viral: BoolArray, weights: FloatArray) -> FloatArray:
    """Return the expected calibration error over ten bins of equal width.

    NaN if no sequence has a probability, or a value is not a probability.

    Parameters
    ----------
    weights
        ``(..., n)``; the result has the shape of the leading dimensions.
    """
    bins = bin_of(probability)
    known = bins >= 0
    if not known.any() or (probability[known] < 0).any() or (probability[known] > 1).any():
        return np.full(weights.shape[:-1], np.nan)
    gap = np.where(known, np.where(known, probability, 0) - viral, 0)
    error = sum(np.abs(weights[..., bins == i] @ gap[bins == i]) for i in range(BINS))
    with np.errstate(invalid="ignore"):
        return np.asarray(error / weights[..., known].sum(axis=-1))

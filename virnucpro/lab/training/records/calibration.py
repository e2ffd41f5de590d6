"""Calibration of records by both logits: that of the record head, and the mean of the windows."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

import numpy as np

from virnucpro.arrays import BoolArray, FloatArray
from virnucpro.classifier.calibration import RecordCalibration
from virnucpro.classifier.prevalence import PRIOR
from virnucpro.lab.training.genomes import Group, are_viral
from virnucpro.lab.training.weights import PROKARYOTES, equal_weights

_PROKARYOTES: Final = 0.85
"""Share of prokaryotes in what is not viral in a metagenome."""
_RIDGE: Final = 1e-4
_STEPS: Final = 30


def fit_length(
    bases: int,
    record: FloatArray,
    windows: FloatArray,
    errors: FloatArray,
    groups: Sequence[Group],
    limit: float,
) -> RecordCalibration:
    """Fit the calibration of one length by weighted logistic regression.

    It is fitted where calls of a metagenome are decided: viral pieces have the weight `PRIOR`, and
    the offset is that of a prevalence of one half. Neither logit counts negatively. Pieces without
    errors and those with errors are fitted at once; a piece between both has a share of each.

    Parameters
    ----------
    bases
        Length of the pieces.
    record, windows
        ``(n,)``, logits of networks that had not seen the group of the piece.
    errors
        ``(n,)``, `share_of_errors` of each piece; zeros: no piece has errors.
    limit
        Largest absolute log odds, see `supported`.
    """
    viral = are_viral(groups)
    weights = metagenome_weights(groups) * np.where(viral, PRIOR, 1 - PRIOR)
    columns = np.stack((record, windows, np.ones(len(viral))), axis=1)
    if errors.any():
        columns = np.hstack((columns * (1 - errors)[:, None], columns * errors[:, None]))
    used = np.ones((columns.shape[1] // 3, 3), np.bool_)
    while True:
        found = np.zeros(used.shape)
        found[used] = _logistic(columns[:, used.ravel()], viral, weights)
        slopes = found * (1, 1, 0)
        if slopes.min() >= 0:
            break
        used.flat[slopes.argmin()] = False
    found[:, 2] += np.log((1 - PRIOR) / PRIOR)
    by_factor = found[:, 0], found[:, 1], found[:, 2]
    clean, *with_errors = (
        RecordCalibration((bases,), (of_record,), (of_windows,), (offset,), limit)
        for of_record, of_windows, offset in zip(*map(_rounded, by_factor), strict=True)
    )
    return replace(clean, with_errors=with_errors[0] if with_errors else None)


def supported(n_others: int) -> float:
    """Return the largest log odds that n pieces of others of a length can support.

    A likelihood ratio above n means less than one false piece at a recall of 1.
    """
    return round(float(np.log(max(n_others, 2))), 2)


def metagenome_weights(groups: Sequence[Group]) -> FloatArray:
    """Return ``(n,)`` weights that sum to 1 for each side, as for `equal_weights`.

    Prokaryotes, with equal genera, have the share of others that they have in metagenomes.
    """
    weights = equal_weights(groups)
    counts = Counter(groups)
    cells = np.array([group[0] in PROKARYOTES for group in groups])
    others = ~are_viral(groups)
    weights[cells] = [1 / counts[group] for group in groups if group[0] in PROKARYOTES]
    for rows, share in ((cells, _PROKARYOTES), (others & ~cells, 1 - _PROKARYOTES)):
        if rows.any():
            weights[rows] *= share / weights[rows].sum()
    weights[others] /= weights[others].sum()
    return weights


def as_json(fitted: Sequence[RecordCalibration]) -> dict[str, Any]:
    """Return the section ``records`` of a calibration from those of single lengths."""
    names = ("lengths", "record", "windows", "offset")
    columns = {name: [getattr(calibration, name)[0] for calibration in fitted] for name in names}
    found = {**columns, "limit": fitted[0].limit}
    if any(calibration.with_errors for calibration in fitted):
        found["with_errors"] = as_json([one.with_errors or one for one in fitted])
    return found


def _rounded(factors: FloatArray) -> list[float]:
    return [round(factor, 6) for factor in factors.tolist()]


def _logistic(x: FloatArray, viral: BoolArray, weights: FloatArray) -> FloatArray:
    """Return the coefficients of the columns of `x` by Newton's method, from 0."""
    w = weights / weights.sum()
    found = np.zeros(x.shape[1])
    for _ in range(_STEPS):
        p = (1 + np.tanh(x @ found / 2)) / 2
        gradient = x.T @ (w * (viral - p)) - _RIDGE * found
        curvature = (x * (w * p * (1 - p))[:, None]).T @ x + _RIDGE * np.eye(len(found))
        found = found + np.linalg.solve(curvature, gradient)
    return found

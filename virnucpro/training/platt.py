"""Probabilities from the mean logit of a record's windows.

The mean logit of many windows is under-confident: their errors cancel out. So each class of
records, by number and length of windows, has its own slope and intercept (Platt scaling). They are
fitted on predictions for groups outside the training set, with both classes of equal weight.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn.functional import binary_cross_entropy_with_logits

from virnucpro.training.groups import Group
from virnucpro.training.weights import equal_weights

__all__ = [
    "LENGTH_CLASSES",
    "LengthClass",
    "Platt",
    "expected_error",
    "fit",
    "held_out",
    "length_classes",
    "realised_fdr",
]

FloatArray = NDArray[np.float64]
BoolArray = NDArray[np.bool_]

_BINS = 10
_PENALTY = 1e-4
_MANY = 4
"""Records of at least this many windows are calibrated by the inverse hyperbolic sine."""


@dataclass(frozen=True, slots=True)
class LengthClass:
    """Records that have one calibration.

    Attributes
    ----------
    bases
        Length of the pieces for the fit.
    min_windows
        Minimum number of scored windows.
    min_bases
        Minimum length in bases of the record.
    """

    bases: int
    min_windows: int
    min_bases: int

    @property
    def asinh(self) -> bool:
        """Whether the line applies to the inverse hyperbolic sine of the mean logit.

        Chosen by the calibration error for groups left out: 0.025 instead of 0.031 at 10,000 bases,
        and 0.011 instead of 0.013 at 3,000; for single windows the mean logit itself is better.
        """
        return self.min_windows >= _MANY

    def values(self, logits: FloatArray) -> FloatArray:
        """Return the values to which the line applies."""
        return np.arcsinh(logits) if self.asinh else logits


LENGTH_CLASSES = (
    LengthClass(200, 1, 0),
    LengthClass(300, 1, 250),
    LengthClass(500, 1, 400),
    LengthClass(1250, 2, 0),
    LengthClass(3000, 4, 0),
    LengthClass(5000, 9, 0),
    LengthClass(10_000, 16, 0),
    LengthClass(30_000, 41, 0),
)
"""Classes for windows of 500 bases; the last matching class is valid for a record."""

_WINDOW = 500


def length_classes(window: int) -> tuple[LengthClass, ...]:
    """Return the classes for windows of this length: `LENGTH_CLASSES` in proportion."""
    return tuple(
        LengthClass(
            one.bases * window // _WINDOW, one.min_windows, one.min_bases * window // _WINDOW
        )
        for one in LENGTH_CLASSES
    )


@dataclass(frozen=True, slots=True)
class Platt:
    """Line of the calibrated logit; its argument is a value of `LengthClass.values`."""

    slope: float
    intercept: float

    def probabilities(self, logits: FloatArray) -> FloatArray:
        """Return the probability of a virus at equal prevalence of both classes."""
        found: FloatArray = 1 / (1 + np.exp(-(self.slope * logits + self.intercept)))
        return found


def fit(logits: FloatArray, viral: BoolArray, weights: FloatArray) -> Platt:
    """Fit slope and intercept by weighted logistic regression."""
    x, y, w = (torch.from_numpy(a.astype(np.float64)) for a in (logits, viral, weights / 2))
    found = torch.tensor([1.0, 0.0], dtype=torch.float64, requires_grad=True)
    optimiser = torch.optim.LBFGS([found], max_iter=50, line_search_fn="strong_wolfe")

    def closure() -> torch.Tensor:
        optimiser.zero_grad()
        loss = binary_cross_entropy_with_logits(
            x * found[0] + found[1], y, weight=w, reduction="sum"
        )
        loss = loss + _PENALTY * (found[0] - 1).square()
        loss.backward()  # type: ignore[no-untyped-call]
        return loss

    optimiser.step(closure)  # type: ignore[no-untyped-call]
    slope, intercept = found.tolist()
    return Platt(slope, intercept)


def held_out(logits: FloatArray, groups: Sequence[Group]) -> FloatArray:
    """Return probabilities of each group by a fit on all other groups."""
    weights = equal_weights(groups)
    viral = np.array([kingdom == "virus" for kingdom, _ in groups])
    _, number = np.unique(["\t".join(group) for group in groups], return_inverse=True)
    found = np.zeros(len(logits))
    for group in range(number.max() + 1):
        inside = number == group
        others = ~inside
        platt = fit(logits[others], viral[others], _balanced(weights[others], viral[others]))
        found[inside] = platt.probabilities(logits[inside])
    return found


def expected_error(probabilities: FloatArray, viral: BoolArray, weights: FloatArray) -> float:
    """Return the expected calibration error over ten bins of equal width."""
    place = np.minimum((probabilities * _BINS).astype(np.int64), _BINS - 1)
    total = weights.sum()
    gaps = np.bincount(place, weights * probabilities) - np.bincount(place, weights * viral)
    return float(np.abs(gaps).sum() / total)


def realised_fdr(
    probabilities: FloatArray,
    viral: BoolArray,
    weights: FloatArray,
    *,
    nominal: float,
    prevalence: float,
) -> tuple[float, float] | None:
    """Return the false discovery rate and the recall of the calls at a nominal rate.

    Parameters
    ----------
    probabilities
        ``(n,)``, at equal prevalence of both classes.
    weights
        ``(n,)``; each class sums to 1.
    nominal, prevalence
        Maximum expected rate of the called records, and share of viral records.

    Returns
    -------
    tuple or None
        None if no record can be called at this rate.
    """
    odds = probabilities / np.maximum(1 - probabilities, 1e-12) * prevalence / (1 - prevalence)
    shifted = odds / (1 + odds)
    shares = np.where(viral, prevalence, 1 - prevalence) * weights
    order = np.argsort(-shifted, kind="stable")
    expected = np.cumsum((shares * (1 - shifted))[order]) / np.cumsum(shares[order])
    within = np.flatnonzero(expected <= nominal)
    if not len(within):
        return None
    called = order[: within[-1] + 1]
    true = float(shares[called][viral[called]].sum())
    return 1 - true / float(shares[called].sum()), true / prevalence


def _balanced(weights: FloatArray, viral: BoolArray) -> FloatArray:
    sums = np.where(viral, weights[viral].sum(), weights[~viral].sum())
    balanced: FloatArray = weights / np.maximum(sums, 1e-12)
    return balanced

"""Probabilities from the mean logit of a record's windows.

The mean logit of many windows is under-confident: their errors cancel out. So each class of
records, by number and length of windows, has its own slope and intercept (Platt scaling), and with
many windows a second slope for negative logits (beta calibration). They are fitted on predictions
for groups outside the training set, with both classes of equal weight.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch.nn.functional import binary_cross_entropy_with_logits

from virnucpro.arrays import BoolArray, FloatArray
from virnucpro.classifier.calibration import PlattLine
from virnucpro.lab.training.genomes import Group, are_viral
from virnucpro.lab.training.weights import equal_weights

_PENALTY = 1e-4
_MANY = 4
"""Records of at least this many windows are calibrated by the inverse hyperbolic sine, with two
slopes."""


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
    def many(self) -> bool:
        """Whether records have enough windows for a calibration of their own.

        Then the line applies to the inverse hyperbolic sine of the mean logit, and negative values
        have a slope of their own. Both are chosen by the figures for groups left out. The
        calibration error is 0.025 instead of 0.031 at 10,000 bases, and 0.011 instead of 0.013 at
        3,000; for single windows the mean logit itself is better. Two slopes have more recall at a
        low false discovery rate from 3,000 bases on, and no smaller calibration error for fewer
        windows (decision 0057).
        """
        return self.min_windows >= _MANY


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
            length_class.bases * window // _WINDOW,
            length_class.min_windows,
            length_class.min_bases * window // _WINDOW,
        )
        for length_class in LENGTH_CLASSES
    )


def fit(
    length_class: LengthClass, logits: FloatArray, viral: BoolArray, weights: FloatArray
) -> PlattLine | None:
    """Fit the line of a length class by weighted logistic regression; None if no line rises.

    Parameters
    ----------
    logits
        ``(n,)``, mean logits of the windows.
    """
    many = length_class.many
    line = PlattLine(length_class.min_windows, length_class.min_bases, 1.0, 0.0, asinh=many)
    x = np.arcsinh(logits) if many else logits
    columns = np.stack([x, np.ones(len(x)), -np.logaddexp(0, -x)], axis=1)
    if many:
        above, intercept, further = _minimise(columns, viral, weights)
        if above > 0 and above + further > 0:
            return replace(line, slope=above, intercept=intercept, slope_below=above + further)
    slope, intercept = _minimise(columns[:, :2], viral, weights)
    return replace(line, slope=slope, intercept=intercept) if slope > 0 else None


def _minimise(columns: FloatArray, viral: BoolArray, weights: FloatArray) -> list[float]:
    """Return the coefficients of the columns x, 1 and, for two slopes, ``-log(1 + exp(-x))``."""
    x, y, w = (torch.from_numpy(a.astype(np.float64)) for a in (columns, viral, weights / 2))
    found = torch.zeros(x.shape[1], dtype=torch.float64)
    found[0] = 1.0
    found.requires_grad_()
    slopes = torch.tensor([[1.0, 0.0, 0.0], [1.0, 0.0, 1.0]], dtype=torch.float64)
    slopes = slopes[:, : x.shape[1]][: x.shape[1] - 1]
    optimiser = torch.optim.LBFGS([found], max_iter=50, line_search_fn="strong_wolfe")

    def closure() -> torch.Tensor:
        optimiser.zero_grad()
        loss = binary_cross_entropy_with_logits(x @ found, y, weight=w, reduction="sum")
        loss = loss + _PENALTY * (slopes @ found - 1).square().sum()
        loss.backward()  # type: ignore[no-untyped-call]
        return loss

    optimiser.step(closure)  # type: ignore[no-untyped-call]
    coefficients: list[float] = found.tolist()
    return coefficients


def held_out(
    length_class: LengthClass,
    logits: FloatArray,
    groups: Sequence[Group],
    folds: Mapping[str, int],
) -> FloatArray:
    """Return log odds of the groups of each fold by a fit on all others; 0 without a line.

    Parameters
    ----------
    folds
        Fold of each group's name.
    """
    weights = equal_weights(groups)
    viral = are_viral(groups)
    fold_of = np.array([folds[name] for _, name in groups])
    found = np.zeros(len(logits))
    for fold in np.unique(fold_of):
        inside = fold_of == fold
        balanced = _balanced(weights[~inside], viral[~inside])
        line = fit(length_class, logits[~inside], viral[~inside], balanced)
        if line is not None:
            found[inside] = line.logits(logits[inside])
    return found


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
    order = order[shares[order] > 0]
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

"""Figures of merit of weighted, labelled scores.

`figures` computes those of the data with scikit-learn. `resampled` computes the same figures for
many weight vectors at once, because a call of scikit-learn per resample takes 100 times as long; a
test compares the two. Weights sum to 1; the weight of the viral class is the prevalence.

===========================  ======================================================================
auroc                        area under the ROC curve, unanswered fragments included
auroc_scored                 the same over scored fragments only
auprc                        average precision
recall_at_fpr_1, _5          highest recall with at most 1 % or 5 % false positives
f1, mcc                      of the calls: viral against all others
fdr                          realised false discovery rate: share of non-viral among called viral
ece                          expected calibration error of the probability, ten equal bins
viral_as_X, non_viral_as_X   share of the class called X; X is viral, non_viral, ambiguous or none
scored_viral, _non_viral     share of the class with a score
===========================  ======================================================================
"""

from collections.abc import Mapping
from typing import Final

import numpy as np
from numpy.typing import NDArray

from virnucpro.evaluation.answers import Answers
from virnucpro.evaluation.predictions import CALLS

__all__ = ["BINS", "WITH_INTERVAL", "bin_of", "figures", "resampled", "roc"]

FloatArray = NDArray[np.float64]

BINS: Final = 10
"""Number of equal bins of the probability."""
WITH_INTERVAL: Final = (
    *("auroc", "auprc", "recall_at_fpr_1", "recall_at_fpr_5", "f1", "mcc", "fdr", "ece"),
    *("viral_as_viral", "non_viral_as_viral"),
)
"""Figures whose intervals and differences are estimated."""

_FALSE_POSITIVES: Final = {"recall_at_fpr_1": 0.01, "recall_at_fpr_5": 0.05}
_ROUNDING: Final = 1e-9
_VIRAL: Final = CALLS.index("viral")
_SHORT: Final = ("none", "viral", "non_viral", "ambiguous")


def roc(
    answers: Answers, viral: NDArray[np.bool_], weights: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Return false positive rates and recalls of all thresholds, by scikit-learn."""
    from sklearn.metrics import roc_curve  # noqa: PLC0415 - an optional dependency

    fpr, tpr, _ = roc_curve(viral, answers.score, sample_weight=weights, drop_intermediate=False)
    return fpr, tpr


def figures(answers: Answers, viral: NDArray[np.bool_], weights: FloatArray) -> dict[str, float]:
    """Return all figures of the data; NaN for an undefined figure.

    Parameters
    ----------
    viral, weights
        (n,) labels and weights.
    """
    from sklearn import metrics  # noqa: PLC0415 - an optional dependency

    fpr, tpr = roc(answers, viral, weights)
    called = answers.call == _VIRAL
    scored = answers.scored
    result = {
        "auroc": metrics.auc(fpr, tpr),
        "auroc_scored": np.nan,
        "auprc": metrics.average_precision_score(viral, answers.score, sample_weight=weights),
        **{name: _recall_at(fpr, tpr, most) for name, most in _FALSE_POSITIVES.items()},
        "f1": metrics.f1_score(viral, called, sample_weight=weights, zero_division=0),
        "mcc": metrics.matthews_corrcoef(viral, called, sample_weight=weights),
    }
    if len(np.unique(viral[scored])) > 1:
        result["auroc_scored"] = metrics.roc_auc_score(
            viral[scored], answers.score[scored], sample_weight=weights[scored]
        )
    others = resampled(answers, viral, weights[None])
    result |= {name: others[name][0] for name in ("fdr", "ece")}
    for name, members in (("viral", viral), ("non_viral", ~viral)):
        for code, short in enumerate(_SHORT):
            share = np.average(answers.call[members] == code, weights=weights[members])
            result[f"{name}_as_{short}"] = share
        result[f"scored_{name}"] = np.average(scored[members], weights=weights[members])
    return {name: float(value) for name, value in result.items()}


def _recall_at(fpr: FloatArray, tpr: FloatArray, most: float) -> float:
    return float(tpr[fpr <= most + _ROUNDING].max())


def resampled(
    answers: Answers, viral: NDArray[np.bool_], weights: FloatArray
) -> Mapping[str, FloatArray]:
    """Return the figures of `WITH_INTERVAL` for many weight vectors.

    Parameters
    ----------
    weights
        (n_resamples, n) weights; both classes have weight in each resample.

    Returns
    -------
    (n_resamples,) values of each figure; NaN where it is undefined.
    """
    order = np.argsort(-answers.score, kind="stable")
    ends = np.append(np.flatnonzero(np.diff(answers.score[order])), len(order) - 1)
    sorted_weights = weights[:, order]
    labels = viral[order]
    hits = np.cumsum(sorted_weights * labels, axis=1)[:, ends]
    alarms = np.cumsum(sorted_weights * ~labels, axis=1)[:, ends]
    tpr, fpr = _from_zero(hits / hits[:, -1:]), _from_zero(alarms / alarms[:, -1:])
    precision = hits / np.maximum(hits + alarms, np.finfo(np.float64).tiny)
    allowed = {name: fpr <= most + _ROUNDING for name, most in _FALSE_POSITIVES.items()}
    return {
        "auroc": ((tpr[:, 1:] + tpr[:, :-1]) / 2 * np.diff(fpr)).sum(axis=1),
        "auprc": (np.diff(tpr) * precision).sum(axis=1),
        **{name: np.where(mask, tpr, 0).max(axis=1) for name, mask in allowed.items()},
        **_of_calls(answers.call == _VIRAL, viral, weights),
        "ece": _calibration_error(answers.probability, viral, weights),
    }


def _from_zero(values: FloatArray) -> FloatArray:
    return np.concatenate([np.zeros((len(values), 1)), values], axis=1)


def _of_calls(
    called: NDArray[np.bool_], viral: NDArray[np.bool_], weights: FloatArray
) -> dict[str, FloatArray]:
    found = weights @ (called & viral)
    false = weights @ (called & ~viral)
    positive, negative = weights @ viral, weights @ ~viral
    missed, true_negative = positive - found, negative - false
    uncalled = missed + true_negative
    with np.errstate(invalid="ignore", divide="ignore"):
        scale = np.sqrt(np.maximum((found + false) * positive * negative * uncalled, 0))
        mcc = (found * true_negative - false * missed) / scale
        return {
            "f1": 2 * found / (2 * found + false + missed),
            "mcc": np.where((called.all() or not called.any()) | ~np.isfinite(mcc), 0.0, mcc),
            "fdr": false / (found + false),
            "viral_as_viral": found / positive,
            "non_viral_as_viral": false / negative,
        }


def bin_of(probability: FloatArray) -> NDArray[np.int64]:
    """Return the bin of each probability, from 0 to `BINS` - 1; -1 for NaN."""
    known = ~np.isnan(probability)
    bins = np.clip((np.where(known, probability, 0) * BINS).astype(np.int64), 0, BINS - 1)
    return np.where(known, bins, -1)


def _calibration_error(
    probability: FloatArray, viral: NDArray[np.bool_], weights: FloatArray
) -> FloatArray:
    bins = bin_of(probability)
    known = bins >= 0
    if not known.any() or (probability[known] < 0).any() or (probability[known] > 1).any():
        return np.full(len(weights), np.nan)
    gap = np.where(known, np.where(known, probability, 0) - viral, 0)
    error = sum(np.abs(weights[:, bins == one] @ gap[bins == one]) for one in range(BINS))
    with np.errstate(invalid="ignore"):
        return np.asarray(error / weights[:, known].sum(axis=1))

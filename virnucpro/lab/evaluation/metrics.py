"""Figures of merit of weighted, labelled scores.

`resampled` computes figures for many weight vectors at once; a test compares them with
scikit-learn. Weights sum to 1; the weight of the viral class is the prevalence.

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

from virnucpro.arrays import BoolArray, FloatArray
from virnucpro.lab.evaluation.answers import Answers
from virnucpro.lab.evaluation.predictions import CALLS
from virnucpro.lab.metrics import auroc, calibration_error, ranked

WITH_INTERVAL: Final = (
    *("auroc", "auprc", "recall_at_fpr_1", "recall_at_fpr_5", "f1", "mcc", "fdr", "ece"),
    *("viral_as_viral", "non_viral_as_viral"),
)
"""Figures whose intervals and differences are estimated."""

_FALSE_POSITIVES: Final = {"recall_at_fpr_1": 0.01, "recall_at_fpr_5": 0.05}
_ROUNDING: Final = 1e-9
_VIRAL: Final = CALLS.index("viral")
_SHORT: Final = ("none", "viral", "non_viral", "ambiguous")


def figures(answers: Answers, viral: BoolArray, weights: FloatArray) -> dict[str, float]:
    """Return all figures of the data; NaN for an undefined figure.

    Parameters
    ----------
    viral, weights
        (n,) labels and weights.
    """
    scored = answers.scored
    found = resampled(answers, viral, weights[None])
    result = {"auroc": found["auroc"][0], "auroc_scored": np.nan}
    result |= {name: found[name][0] for name in WITH_INTERVAL if not name.endswith("_viral")}
    if len(np.unique(viral[scored])) > 1:
        result["auroc_scored"] = auroc(answers.score[scored], viral[scored], weights[scored])
    for name, members in (("viral", viral), ("non_viral", ~viral)):
        for code, short in enumerate(_SHORT):
            share = np.average(answers.call[members] == code, weights=weights[members])
            result[f"{name}_as_{short}"] = share
        result[f"scored_{name}"] = np.average(scored[members], weights=weights[members])
    return {name: float(value) for name, value in result.items()}


def resampled(answers: Answers, viral: BoolArray, weights: FloatArray) -> Mapping[str, FloatArray]:
    """Return the figures of `WITH_INTERVAL` for many weight vectors.

    Parameters
    ----------
    weights
        (n_resamples, n) weights; both classes have weight in each resample.

    Returns
    -------
    (n_resamples,) values of each figure; NaN where it is undefined.
    """
    curve = ranked(answers.score, viral, weights)
    allowed = {
        name: curve.false_positives <= most + _ROUNDING for name, most in _FALSE_POSITIVES.items()
    }
    return {
        "auroc": curve.area,
        "auprc": (np.diff(curve.recall) * curve.precision[:, 1:]).sum(axis=1),
        **{name: np.where(mask, curve.recall, 0).max(axis=1) for name, mask in allowed.items()},
        **_of_calls(answers.call == _VIRAL, viral, weights),
        "ece": calibration_error(answers.probability, viral, weights),
    }


def _of_calls(called: BoolArray, viral: BoolArray, weights: FloatArray) -> dict[str, FloatArray]:
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

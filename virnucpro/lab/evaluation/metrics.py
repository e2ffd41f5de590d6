"""Figures of merit of weighted, labelled scores.

`figures` computes them for many weight vectors at once; a test compares them with scikit-learn.
Weights sum to 1; the weight of the viral class is the prevalence.

===================  ==============================================================================
auroc                area under the ROC curve, unanswered fragments included
auprc                average precision
recall_at_fpr_5      highest recall with at most 5 % false positives
mcc                  of the calls: viral against all others
fdr                  realised false discovery rate: share of non-viral among called viral
ece                  expected calibration error of the probability, ten equal bins
viral_as_viral       share of the viral class called viral
non_viral_as_viral   share of the other class called viral
===================  ==============================================================================
"""

from collections.abc import Mapping
from typing import Final

import numpy as np

from virnucpro.arrays import BoolArray, FloatArray
from virnucpro.lab.evaluation.predictions import Answers
from virnucpro.lab.metrics import calibration_error, ranked

_FALSE_POSITIVES: Final = 0.05
_ROUNDING: Final = 1e-9


def figures(answers: Answers, viral: BoolArray, weights: FloatArray) -> Mapping[str, FloatArray]:
    """Return all figures for many weight vectors.

    Parameters
    ----------
    viral
        (n,) labels.
    weights
        (n_resamples, n) weights; both classes have weight in each resample.

    Returns
    -------
    (n_resamples,) values of each figure; NaN where it is undefined.
    """
    curve = ranked(answers.score, viral, weights)
    allowed = curve.false_positives <= _FALSE_POSITIVES + _ROUNDING
    return {
        "auroc": curve.area,
        "auprc": (np.diff(curve.recall) * curve.precision[:, 1:]).sum(axis=1),
        "recall_at_fpr_5": np.where(allowed, curve.recall, 0).max(axis=1),
        **_of_calls(answers.called_viral, viral, weights),
        "ece": calibration_error(answers.probability, viral, weights),
    }


def _of_calls(called: BoolArray, viral: BoolArray, weights: FloatArray) -> dict[str, FloatArray]:
    true = weights @ (called & viral)
    false = weights @ (called & ~viral)
    positive, negative = weights @ viral, weights @ ~viral
    missed, true_negative = positive - true, negative - false
    with np.errstate(invalid="ignore", divide="ignore"):
        product = (true + false) * positive * negative * (missed + true_negative)
        mcc = (true * true_negative - false * missed) / np.sqrt(np.maximum(product, 0))
        return {
            "mcc": np.where((called.all() or not called.any()) | ~np.isfinite(mcc), 0.0, mcc),
            "fdr": false / (true + false),
            "viral_as_viral": true / positive,
            "non_viral_as_viral": false / negative,
        }

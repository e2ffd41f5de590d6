"""Figures of the predictions for groups left out, with intervals by bootstrap over groups."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from virnucpro.training.cross_validation import Calibrated, Pieces
from virnucpro.training.groups import VIRUS, Group
from virnucpro.training.platt import expected_error, posterior, realised_fdr
from virnucpro.training.weights import auroc, equal_weights, resampled_weights, share_above

__all__ = ["accuracy_figures"]

FloatArray = NDArray[np.float64]

_NOMINAL: Final = 0.05
_PREVALENCES: Final = (0.5, 0.1)
"""Nominal FDR, and the shares of viral records at which the realised rate is measured."""
_RESAMPLES: Final = 500
_TAILS: Final = (2.5, 97.5)


def accuracy_figures(
    calibrated: Sequence[Calibrated],
    logits: Mapping[int, FloatArray],
    pieces: Mapping[int, Pieces],
    threshold: float,
    seed: int,
) -> dict[str, Any]:
    """Return the figures of each length in bases as JSON, with 95 % intervals.

    AUROC, also of the viruses against each kingdom, calibration error, realised FDR and recall at a
    nominal FDR of 5 % and two prevalences, and the share of each kingdom called viral at
    `threshold`. The calibration of each piece is fitted without its group. A rate without a call is
    None; its resamples without a call have a rate and a recall of 0.
    """
    found = {}
    for one in calibrated:
        bases = one.length_class.bases
        groups, viral = pieces[bases].groups, pieces[bases].viral
        weights = equal_weights(groups)
        resampled = resampled_weights(groups, _RESAMPLES, seed)
        errors = [expected_error(one.held_out, viral, drawn) for drawn in resampled]
        found[str(bases)] = {
            "pieces": len(groups),
            "auroc": _rounded(auroc(logits[bases], viral, weights)),
            "auroc_interval": _interval(auroc(logits[bases], viral, resampled)),
            "auroc_of_kingdom": _by_kingdom(logits[bases], groups, seed),
            "calibration_error": _rounded(expected_error(one.held_out, viral, weights)),
            "calibration_error_interval": _interval(errors),
            "realised_fdr": {
                str(share): _fdr(one.held_out, viral, weights, resampled, share)
                for share in _PREVALENCES
            },
            "called_viral": share_above(
                posterior(one.line, logits[bases]), groups, {"": threshold}
            )[""],
        }
    return {"cross_validation": found}


def _interval(values: Sequence[float] | FloatArray) -> list[float]:
    """Return the 95 % interval of the figures of resamples."""
    return [_rounded(value) for value in np.percentile(values, _TAILS)]


def _by_kingdom(
    logits: FloatArray, groups: Sequence[Group], seed: int
) -> dict[str, dict[str, Any]]:
    """Return the AUROC of viruses against each kingdom; no interval for a single group."""
    found: dict[str, dict[str, Any]] = {}
    for kingdom in sorted({one for one, _ in groups} - {VIRUS}):
        rows = [row for row, (one, _) in enumerate(groups) if one in (VIRUS, kingdom)]
        chosen = [groups[row] for row in rows]
        viral = np.array([one == VIRUS for one, _ in chosen])
        values = logits[rows]
        found[kingdom] = {"auroc": _rounded(auroc(values, viral, equal_weights(chosen)))}
        n_groups = len({group for group in chosen if group[0] == kingdom})
        found[kingdom]["groups"] = n_groups
        if n_groups > 1:
            resampled = resampled_weights(chosen, _RESAMPLES, seed)
            found[kingdom]["auroc_interval"] = _interval(auroc(values, viral, resampled))
    return found


def _fdr(
    held_out: FloatArray,
    viral: NDArray[np.bool_],
    weights: FloatArray,
    resampled: FloatArray,
    prevalence: float,
) -> dict[str, Any] | None:
    rates = [
        realised_fdr(held_out, viral, one, nominal=_NOMINAL, prevalence=prevalence)
        for one in (weights, *resampled)
    ]
    if rates[0] is None:
        return None
    drawn = np.array([rate or (0.0, 0.0) for rate in rates[1:]])
    return {
        "fdr": _rounded(rates[0][0]),
        "fdr_interval": _interval(drawn[:, 0]),
        "recall": _rounded(rates[0][1]),
        "recall_interval": _interval(drawn[:, 1]),
    }


def _rounded(value: float | FloatArray) -> float:
    return abs(round(float(value), 4))

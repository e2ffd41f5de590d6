"""Turn the mean logit of a record into a calibrated probability, and probabilities into q-values.

The logit of a window is ``log(virus) - log(others)`` of its scores. The evidence of a record grows
with its windows. Each class of records, by number and length of the scored windows, therefore has
its own line ``slope * mean_logit + intercept`` (Platt scaling), or a curve with another slope for
negative logits (beta calibration; Kull, Silva Filho and Flach 2017). They are fitted on groups that
the classifier had not seen. A bundle stores the lines for one prevalence; another prevalence shifts
the logit (Elkan 2001, "The foundations of cost-sensitive learning", theorem 2).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from virnucpro.classifier.call_options import PRESETS
from virnucpro.errors import BundleError

__all__ = [
    "LOGIT_LIMIT",
    "Calibration",
    "PlattLine",
    "Preset",
    "estimate_prevalence",
    "q_values",
    "read_calibration",
]

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]

LOGIT_LIMIT: Final = 30.0
"""Largest absolute logit of a window; a float32 score of 0 would have an infinite logit."""

_ROUNDS: Final = 200
_CONVERGED: Final = 1e-6


@dataclass(frozen=True, slots=True)
class PlattLine:
    """Calibration of the records with at least `min_windows` scored windows and `min_bases` bases.

    The calibrated logit is ``slope * x + intercept``, where x is the mean logit, or its inverse
    hyperbolic sine if `asinh`: the tails of records with many windows are under-confident. With
    `slope_below`, the slope goes from `slope` to `slope_below` around x = 0 (beta calibration):
    ``slope * log(1 + exp(x)) - slope_below * log(1 + exp(-x)) + intercept``.
    """

    min_windows: int
    min_bases: int
    slope: float
    intercept: float
    asinh: bool = False
    slope_below: float | None = None

    def logits(self, mean_logits: FloatArray) -> FloatArray:
        """Return the calibrated logit of each mean logit; it rises with the mean logit."""
        x = np.arcsinh(mean_logits) if self.asinh else mean_logits
        line: FloatArray = self.slope * x + self.intercept
        if self.slope_below is not None:
            # log(1 + exp(x)) is x + log(1 + exp(-x)).
            line += (self.slope - self.slope_below) * np.logaddexp(0, -x)
        return line


@dataclass(frozen=True, slots=True)
class Preset:
    """Probabilities that divide calls: from `viral` on viral, below `non_viral` non-viral."""

    viral: float
    non_viral: float


@dataclass(frozen=True, slots=True)
class Calibration:
    """Calibration of a bundle.

    Attributes
    ----------
    lines
        Calibration lines; a record uses the last line whose minima it reaches.
    prevalence
        Share of viral records for which the lines were fitted.
    presets
        Thresholds of each preset.
    min_bases
        Records with fewer bases in scored windows are ambiguous.
    min_scored
        Records with a smaller share of scored windows are ambiguous.
    gc
        Smallest and largest GC content of the training windows (1st and 99th percentile).
    """

    lines: tuple[PlattLine, ...]
    prevalence: float
    presets: Mapping[str, Preset]
    min_bases: int
    min_scored: float
    gc: tuple[float, float]

    def probability(
        self, logit: FloatArray, n_windows: IntArray, n_bases: IntArray, prevalence: float
    ) -> FloatArray:
        """Return the probability that each record is viral.

        Parameters
        ----------
        logit
            ``(n,)``, mean logit of the scored windows; NaN for a record without a score.
        n_windows, n_bases
            ``(n,)``, number of scored windows, and of bases in these windows.
        prevalence
            Expected share of viral records.

        Returns
        -------
        ``(n,)`` float64
            NaN for a record without a score.
        """
        value = logit.copy()
        for line in self.lines:
            reached = (n_windows >= line.min_windows) & (n_bases >= line.min_bases)
            value[reached] = line.logits(logit[reached])
        shift = _logit(prevalence) - _logit(self.prevalence)
        total = np.clip(value + shift, -500, 500)  # exp would overflow
        calibrated: FloatArray = 1 / (1 + np.exp(-total))
        return calibrated


def estimate_prevalence(probability: FloatArray, prevalence: float) -> float:
    """Estimate the share of viral records from the probabilities of all records of a run.

    This is the maximum likelihood estimate by expectation maximisation (Saerens, Latinne and
    Decaestecker 2002). It assumes that viral and other records of the run resemble those of the
    calibration.

    Parameters
    ----------
    probability
        ``(n,)``, probabilities at the prevalence `prevalence`; NaN is ignored.

    Returns
    -------
    float
        Between 0.001 and 0.999; `prevalence` if there is no probability.
    """
    known = probability[np.isfinite(probability)]
    if not len(known):
        return prevalence
    odds = known / np.maximum(1 - known, np.finfo(float).eps) * (1 - prevalence) / prevalence
    share = prevalence
    for _ in range(_ROUNDS):
        weighed = odds * share / (1 - share)
        estimate = min(max(float(np.mean(weighed / (1 + weighed))), 0.001), 0.999)
        if abs(estimate - share) < _CONVERGED:
            return estimate
        share = estimate
    return share


def q_values(probability: FloatArray) -> FloatArray:
    """Return for each record the false discovery rate of all records of at least its probability.

    This is the expected share of non-viral records among these records.

    Parameters
    ----------
    probability
        ``(n,)``; NaN for a record without a score.

    Returns
    -------
    ``(n,)`` float64
        NaN where `probability` is NaN. Equal probabilities have equal q-values.
    """
    values = np.full(len(probability), np.nan)
    known = np.flatnonzero(np.isfinite(probability))
    order = known[np.argsort(-probability[known], kind="stable")]
    ranked = probability[order]
    expected = np.cumsum(1 - ranked) / np.arange(1, len(ranked) + 1)
    last = np.searchsorted(-ranked, -ranked, side="right") - 1
    values[order] = expected[last]
    return values


def _logit(share: float) -> float:
    return float(np.log(share) - np.log1p(-share))


def read_calibration(content: Any, source: object) -> Calibration:  # noqa: ANN401 - JSON
    """Return the calibration in the JSON object `content` of the file `source`.

    Raises
    ------
    BundleError
        If a field is missing or invalid.
    """
    try:
        calibration = Calibration(
            lines=tuple(
                PlattLine(
                    int(line["min_windows"]),
                    int(line["min_bases"]),
                    float(line["slope"]),
                    float(line["intercept"]),
                    bool(line.get("asinh", False)),
                    None if line.get("slope_below") is None else float(line["slope_below"]),
                )
                for line in content["lines"]
            ),
            prevalence=float(content["prevalence"]),
            presets={name: Preset(**content["presets"][name]) for name in PRESETS},
            min_bases=int(content["min_bases"]),
            min_scored=float(content["min_scored"]),
            gc=(float(content["gc"][0]), float(content["gc"][1])),
        )
    except (KeyError, TypeError, ValueError, IndexError) as error:
        raise BundleError(
            f"{source}: the calibration has a missing or invalid field ({error!r}). "
            "Get the bundle again."
        ) from error
    if problem := _problem(calibration):
        raise BundleError(f"{source}: the calibration {problem}. Get the bundle again.")
    return calibration


def _problem(calibration: Calibration) -> str:
    """Return a description of the first invalid value; "" if all values are valid."""
    if not calibration.lines:
        return "has no line"
    slopes = [one.slope for one in calibration.lines]
    slopes += [one.slope_below for one in calibration.lines if one.slope_below is not None]
    if not np.isfinite([*slopes, *(one.intercept for one in calibration.lines)]).all():
        return "has a line that is not finite"
    if min(slopes) <= 0:
        return "has a line with a slope of 0 or less"
    if not 0 < calibration.prevalence < 1:
        return f"has the prevalence {calibration.prevalence}, which is not between 0 and 1"
    presets: Sequence[Preset] = [calibration.presets[name] for name in PRESETS]
    if not all(0 <= preset.non_viral <= preset.viral <= 1 for preset in presets):
        return "needs presets with 0 <= non_viral <= viral <= 1"
    return ""

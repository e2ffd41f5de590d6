"""The share of viral records that an input is assumed to have, and probabilities at this share.

A calibration stands for an input of which half is viral. In a metagenome of 5 % viruses, most calls
at such a probability would be false. Another prevalence shifts the log odds (Elkan 2001, "The
foundations of cost-sensitive learning", theorem 2).
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import numpy as np

from virnucpro.arrays import FloatArray, slices

PRIOR: Final = 0.05
"""Prevalence that is expected before an input is seen."""
PRIOR_RECORDS: Final = 20
"""Number of records that this expectation counts for."""
LEAST_BASES: Final = 1_000
"""Records of fewer known bases do not count in an estimate. Those of one host resemble each other:
one whose composition is that of phages would be taken for thousands of viruses."""

_LIMITS: Final = (1e-4, 0.9995)
_HIGHEST: Final = 16
_BINS: Final = 32
"""Bins per unit of log odds. Counts in bins do not depend on the order of the records."""
_STEPS: Final = 50
_DROP: Final = 1.92
"""Fall of the log likelihood at the borders of a 95 % interval."""


@dataclass(frozen=True, slots=True)
class Prevalence:
    """Assumed share of viral records, and its 95 % interval; three equal numbers if it is given.

    `records` is the number of records from which it is estimated. If there is none, it is `PRIOR`.
    """

    value: float
    low: float
    high: float
    records: int = 0

    @property
    def text(self) -> str:
        """Return the assumption in words, such as ``assumed 5.1 % viral (3.2 to 8.0 %)``."""
        source = f"{_percent(self.low)} to {_percent(self.high)} %"
        if self.low == self.value == self.high:
            source = "given"
        elif not self.records:
            source = f"not estimated: no sequence of {LEAST_BASES:,} bases can be called"
        return f"assumed {_percent(self.value)} % viral ({source})"


def _percent(share: float) -> str:
    return f"{100 * share:.{0 if share >= 0.1 else 1 if share >= 0.001 else 2}f}"


@dataclass(frozen=True, slots=True)
class Expectation:
    """Prevalence of an input, number of its viral calls, and expected number of false ones."""

    prevalence: Prevalence
    called: int
    false: float

    @property
    def text(self) -> str:
        """Return all three in words."""
        return f"{self.prevalence.text}; {self.called:,} called; expected false: {self._false}"

    @property
    def warning(self) -> str:
        """Return a warning if most of the viral calls are expected to be false, else ""."""
        if self.false <= self.called / 2:
            return ""
        return (
            f"{self._false} of {self.called:,} viral calls are expected to be false. For fewer "
            "false calls: virnucpro rescore RUN --preset conservative, or --fdr 0.1"
        )

    @property
    def _false(self) -> str:
        return f"{self.false:,.{int(self.false < 10)}f}"


def posterior(log_odds: FloatArray, prevalence: float) -> FloatArray:
    """Return the probability of each record at a prevalence.

    Parameters
    ----------
    log_odds
        ``(n,)``, log odds at a prevalence of one half; NaN for a record without a score.
    prevalence
        Share of viral records, between 0 and 1.

    Returns
    -------
    ``(n,)`` float64
        NaN for a record without a score.
    """
    shift = np.log(prevalence) - np.log1p(-prevalence)
    shifted = np.clip(log_odds + shift, -500, 500)  # exp would overflow
    probability: FloatArray = 1 / (1 + np.exp(-shifted))
    return probability


def estimate_prevalence(log_odds: FloatArray) -> Prevalence:
    """Estimate the share of viral records from the log odds of all records of an input.

    The estimate is the maximum of the likelihood of the prior shift, at which the EM of Saerens,
    Latinne and Decaestecker (Neural Computation 14, 2002) ends. `PRIOR_RECORDS` records of
    prevalence `PRIOR` are added, so that few records move the estimate little. The interval is
    that of the likelihood ratio; it does not cover errors of the calibration.

    Parameters
    ----------
    log_odds
        ``(n,)``, calibrated log odds at a prevalence of one half of the records that count; NaN is
        ignored.

    Returns
    -------
    Prevalence
        Three significant digits: the rounded value gives the same probabilities again.
    """
    counts = np.zeros(2 * _HIGHEST * _BINS + 1, np.int64)
    for part in slices(len(log_odds)):
        known = log_odds[part][np.isfinite(log_odds[part])]
        limited = np.clip(known, -_HIGHEST, _HIGHEST)
        numbers = np.rint((limited + _HIGHEST) * _BINS).astype(np.int64)
        counts += np.bincount(numbers, minlength=len(counts))
    filled = np.flatnonzero(counts)
    counts, excess = counts[filled], np.expm1(filled / _BINS - _HIGHEST)

    def likelihood(share: float) -> float:
        prior = PRIOR * np.log(share) + (1 - PRIOR) * np.log1p(-share)
        return float(counts @ np.log1p(share * excess) + PRIOR_RECORDS * prior)

    def slope(share: float) -> float:
        prior = PRIOR / share - (1 - PRIOR) / (1 - share)
        return float(counts @ (excess / (1 + share * excess)) + PRIOR_RECORDS * prior)

    least, most = _LIMITS
    value = _root(slope, least, most)
    limit = likelihood(value) - _DROP
    low = _root(lambda share: limit - likelihood(share), least, value)
    high = _root(lambda share: likelihood(share) - limit, value, most)
    value, low, high = (float(f"{share:.3g}") for share in (value, low, high))
    return Prevalence(value, low, high, int(counts.sum()))


def _root(falling: Callable[[float], float], low: float, high: float) -> float:
    """Return where a falling function is 0 by bisection; `low` or `high` if it is 0 nowhere."""
    for _ in range(_STEPS):
        middle = (low + high) / 2
        low, high = (middle, high) if falling(middle) > 0 else (low, middle)
    return (low + high) / 2

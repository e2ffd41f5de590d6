"""The share of viral records that an input is assumed to have, and probabilities at this share.

A calibration stands for an input of which half is viral. In a metagenome of 5 % viruses, most calls
at such a probability would be false. Another prevalence shifts the log odds (Elkan 2001, "The
foundations of cost-sensitive learning", theorem 2).

The likelihood takes one host whose scores are in the middle for many viruses; the tail of the
scores tells both apart (decision 0104).
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import ArrayLike

from virnucpro.arrays import FloatArray, IntArray, slices
from virnucpro.classifier.calibration import Tails

PRIOR: Final = 0.05
"""Prevalence that is expected before an input is seen."""
PRIOR_RECORDS: Final = 20
"""Number of records that this expectation counts for."""
LEAST_BASES: Final = 1_000
"""Records of fewer known bases do not count in an estimate. Those of one host resemble each other:
one whose composition is that of phages would be taken for thousands of viruses."""

_LIMITS: Final = (1e-4, 0.9994)
_HIGHEST: Final = 16
_BINS: Final = 32
"""Bins per unit of log odds. Counts in bins do not depend on the order of the records."""
_STEPS: Final = 50
_DROP: Final = 1.92
"""Fall of the log likelihood at the borders of a 95 % interval."""

_TAIL: Final = (0.15, 0.65)
"""Shares of viral records that reach the thresholds of the tail: by how much at least more than of
others, and at most."""
_RARE: Final = 1.3
"""Standard errors by which an input has too few records in the tail for the likely prevalence."""
_MUCH: Final = {False: 3, True: 2}
"""Factor by which this prevalence and that of the tail differ much, for contigs and for genes."""
_NEARLY_ALL: Final = 0.95
"""Share of viral records that reach the threshold below which are others, but few viruses."""
_VIRUSES: Final = 0.9
"""Share of records above this threshold, as viral ones, of an input of viruses alone."""


@dataclass(frozen=True, slots=True)
class Prevalence:
    """Assumed share of viral records, and its interval; three equal numbers if it is given.

    `records` is the number of records from which it is estimated. If there is none, it is `PRIOR`.
    The scores of a `doubtful` estimate fit no share, and calls depend on it.
    """

    value: float
    low: float
    high: float
    records: int = 0
    doubtful: bool = False

    @property
    def given(self) -> bool:
        """Return whether the user gave the share."""
        return self.low == self.value == self.high

    @property
    def text(self) -> str:
        """Return the assumption in words, such as ``assumed 5.1 % viral (3.2 to 8.0 %)``."""
        source = f"{_percent(self.low)} to {_percent(self.high)} %"
        if self.given:
            source = "given"
        elif not self.records:
            source = f"not estimated: no sequence of {LEAST_BASES:,} bases can be called"
        return f"assumed {_percent(self.value)} % viral ({source})"


def _percent(share: float) -> str:
    return f"{100 * share:.{0 if share >= 0.1 else 1 if share >= 0.001 else 2}f}"


@dataclass(frozen=True, slots=True)
class Expectation:
    """Prevalence of an input, number of its viral calls, and expected number of false ones.

    `resting` calls rest on the prevalence: at one half, these records would not be viral.
    """

    prevalence: Prevalence
    called: int
    false: float
    resting: int = 0

    @classmethod
    def of(
        cls, prevalence: Prevalence, known: int, called: int, false: float, resting: int
    ) -> "Expectation":
        """Limit the false calls by the records (of `known` ones) that a given share leaves."""
        most = (1 - prevalence.value) * known if prevalence.given else false
        return cls(prevalence, called, min(false, most), resting)

    @property
    def text(self) -> str:
        """Return all in words."""
        text = f"{self.prevalence.text}; {self.called:,} called; expected false: {self._false}"
        return f"{text}; {self.resting:,} viral at this share only" if self.resting else text

    @property
    def warning(self) -> str:
        """Return a warning if the share is doubtful or most calls are expected to be false."""
        found = []
        if self.prevalence.doubtful:
            found.append(
                f"the scores fit neither {_percent(self.prevalence.low)} nor "
                f"{_percent(self.prevalence.high)} % of viral sequences; the input may be one "
                "organism (an isolate, a transcriptome, a set of genes). If you know the share: "
                "virnucpro rescore RUN --prevalence P"
            )
        if self.false > self.called / 2:
            found.append(
                f"{self._false} of {self.called:,} viral calls are expected to be false. For fewer "
                "false calls: virnucpro rescore RUN --preset conservative, or --fdr 0.1"
            )
        return ". ".join(found)

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


def estimate_prevalence(
    log_odds: FloatArray,
    tails: Tails | None = None,
    length: IntArray | None = None,
    *,
    genes: bool = False,
) -> Prevalence:
    """Estimate the share of viral records from the log odds of all records of an input.

    The likely share is the maximum of the likelihood of the prior shift, at which the EM of
    Saerens, Latinne and Decaestecker (Neural Computation 14, 2002) ends. `PRIOR_RECORDS` records of
    prevalence `PRIOR` are added, so that few records move the estimate little. The interval is
    that of the likelihood ratio, upwards without these records; it does not cover errors of the
    calibration. With `tails`, the records that reach high thresholds give another share. If it is
    much smaller, it is the estimate, unless nearly no record has the scores of others. The interval
    spans both.

    Parameters
    ----------
    log_odds
        ``(n,)``, calibrated log odds at a prevalence of one half of the records that count; NaN is
        ignored.
    tails
        Tails of the calibration, which need `length`, ``(n,)`` bases; None for the likely share.
    genes
        Whether the records are single genes: then a prevalence above `PRIOR` needs the tail, too.

    Returns
    -------
    Prevalence
        Three significant digits: the rounded value gives the same probabilities again.
    """
    all_counts = np.zeros(2 * _HIGHEST * _BINS + 1, np.int64)
    classes = np.zeros(len(tails.lengths) if tails else 0, np.int64)
    for part in slices(len(log_odds)):
        finite = np.isfinite(log_odds[part])
        all_counts += np.bincount(_bins(log_odds[part][finite]), minlength=len(all_counts))
        if tails and length is not None:
            nearest = tails.nearest(length[part][finite])
            classes += np.bincount(nearest, minlength=len(classes))
    filled = np.flatnonzero(all_counts)
    counts, excess = all_counts[filled], np.expm1(filled / _BINS - _HIGHEST)

    def likelihood(share: float, added: int) -> float:
        prior = PRIOR * np.log(share) + (1 - PRIOR) * np.log1p(-share)
        return float(counts @ np.log1p(share * excess) + added * prior)

    def slope(share: float, added: int) -> float:
        prior = PRIOR / share - (1 - PRIOR) / (1 - share)
        return float(counts @ (excess / (1 + share * excess)) + added * prior)

    def interval(added: int) -> tuple[float, float, float]:
        least, most = _LIMITS
        value = _root(lambda share: slope(share, added), least, most)
        limit = likelihood(value, added) - _DROP
        low = _root(lambda share: limit - likelihood(share, added), least, value)
        return value, low, _root(lambda share: likelihood(share, added) - limit, value, most)

    value, low, high = interval(PRIOR_RECORDS)
    if len(filled):
        high = max(high, interval(0)[2])
    doubtful = False
    if tails and classes.any():
        at_least = np.cumsum(all_counts[::-1])[::-1]

        def above(limits: ArrayLike) -> IntArray:
            found: IntArray = at_least[_bins(np.asarray(limits))]
            return found

        tail, all_viral, doubtful = _of_tails(value, above(tails.thresholds), classes, tails)
        doubtful &= tail * _MUCH[genes] < value
        doubtful &= bool(above(np.log(1 / value - 1)) > above(np.log(1 / tail - 1)))
        if doubtful and (genes or not all_viral):
            value = min(tail, PRIOR) if genes else tail
        low = min(low, tail, value)
    value, low, high = (float(f"{share:.3g}") for share in (value, low, high))
    return Prevalence(value, low, high, int(counts.sum()), doubtful)


def _bins(log_odds: FloatArray) -> IntArray:
    limited = np.clip(log_odds, -_HIGHEST, _HIGHEST)
    return np.rint((limited + _HIGHEST) * _BINS).astype(np.int64)


def _of_tails(
    likely: float, above: IntArray, classes: IntArray, tails: Tails
) -> tuple[float, bool, bool]:
    """Return the share by the tail, whether all are viral, and whether it has too few.

    `above` and `classes` are the numbers of records by threshold and by length.
    """
    n = int(classes.sum())
    viral, others = (classes / n @ shares for shares in tails.shares())
    spread = np.maximum(viral - others, 1e-9)
    least, most = _TAIL
    far = (spread > least) & (viral < most)
    if not far.any():
        return likely, False, False
    number = (above - n * others) / spread
    share = (number[far].min() + PRIOR * PRIOR_RECORDS) / (n + PRIOR_RECORDS)
    share = float(np.clip(share, *_LIMITS))
    expected = n * (likely * viral + (1 - likely) * others)[far]
    rare = ((expected - above[far]) > _RARE * np.sqrt(expected)).any()
    low = np.flatnonzero(viral >= _NEARLY_ALL)[-1:]
    all_viral = bool((number[low] >= _VIRUSES * n).any())
    return share, all_viral, bool(rare)


def _root(falling: Callable[[float], float], low: float, high: float) -> float:
    """Return where a falling function is 0 by bisection; `low` or `high` if it is 0 nowhere."""
    for _ in range(_STEPS):
        middle = (low + high) / 2
        low, high = (middle, high) if falling(middle) > 0 else (low, middle)
    return (low + high) / 2

"""Compare vectors and scores with expected values from fp32 on the CPU. Pure functions."""

from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from virnucpro.encoders.base import Precision
from virnucpro.store.segment_checks import finite_rows

__all__ = ["ScoreAgreement", "VectorAgreement", "compare_scores", "compare_vectors"]

FloatArray = npt.NDArray[np.float32]

_LARGEST_ERROR: Final = 1e-5
"""Maximum error of a number at fp32, relative to max(1, largest number of its channel)."""

_LEAST_COSINE: Final = {"fp16": 0.9999, "bf16": 0.999}
_MOST_SHIFT: Final = {"fp16": 0.05, "bf16": 0.25}
"""Minimum cosine and maximum shift of a vector; see `VectorAgreement`.

Measured shifts of ESM-2 8M with random weights: 0.0016 at fp16, 0.025 at bf16.
"""

_SCORES_APART: Final = {"fp32": 1e-4, "fp16": 0.01, "bf16": 0.05}
"""Maximum error of a score. Measured with the bundle `mini` at bf16: up to 0.0024."""

_QUIET_CHANNEL: Final = 1 / 8
"""Minimum spread of a channel in the shift, relative to the median size of all channels."""

_ROUNDING_QUANTILE: Final = 0.9
_ROUNDING_REACH: Final = 3.0
"""Limit for changes of log odds by rounding: three times the 0.9 quantile of all changes.

The largest change is not used as the limit, because a wrong result can have any change.
"""

_LEAST_SCORE: Final = 1e-7
"""Lower scores are raised to this value before log odds are computed."""


@dataclass(frozen=True, slots=True)
class VectorAgreement:
    """Result of a comparison of vectors with expected vectors.

    Attributes
    ----------
    n, not_finite
        Number of vectors, and of vectors with NaN or infinite numbers. All other attributes
        ignore vectors with NaN or infinite numbers.
    least_cosine, median_cosine
        Lowest and median cosine between a vector and its expected vector; 0 if no vector is finite.
    largest_error
        Largest absolute difference between a number and its expected value.
    largest_shift
        Largest shift of a vector; 0 if there is only one vector. The error of each channel is
        divided by the standard deviation of this channel over the expected vectors. The shift is
        the root mean square of these ratios. All channels have the same weight; a cosine mainly
        depends on a few large channels.
    scale
        Largest absolute value in the expected vectors.
    tolerance
        The tolerance of the precision, as text for reports.
    """

    encoder: str
    n: int
    not_finite: int
    least_cosine: float
    median_cosine: float
    largest_error: float
    largest_shift: float
    scale: float
    tolerance: str
    agrees: bool


@dataclass(frozen=True, slots=True)
class ScoreAgreement:
    """Result of a comparison of classifier scores with expected scores.

    Attributes
    ----------
    n, not_finite
        Number of items, and of items with a NaN or infinite score.
    largest_error
        Largest absolute difference between a score and its expected value.
    tolerated
        Maximum `largest_error` for agreement.
    flips
        Number of items whose label differs from the expected label.
    explained
        Number of `flips` that rounding explains: the expected log odds are close to 0. The limit
        is three times the 0.9 quantile of the changes in items with an unchanged label.
    """

    n: int
    not_finite: int
    largest_error: float
    tolerated: float
    flips: int
    explained: int

    @property
    def agrees(self) -> bool:
        """Return whether all scores are within the tolerance and only rounding changed labels."""
        near = self.largest_error <= self.tolerated
        return near and self.flips == self.explained and not self.not_finite


def compare_vectors(
    encoder: str, found: FloatArray, wanted: FloatArray, precision: Precision
) -> VectorAgreement:
    """Compare vectors `found` with expected vectors `wanted`, both (n, dim) with n >= 1.

    At fp32, every absolute error must be within the tolerance. At half precision, the lowest cosine
    and the largest shift must be within the tolerance. Vectors with NaN or infinite
    numbers never agree, although a run would recompute such a vector at fp32.
    """
    finite = finite_rows(found)
    ours, theirs = found[finite].astype(np.float64), wanted[finite].astype(np.float64)
    cosines = _cosines(ours, theirs) if len(ours) else np.zeros(1)
    errors, shift = np.abs(ours - theirs), _largest_shift(ours, theirs)
    if precision == "fp32":
        bounds = _LARGEST_ERROR * np.maximum(1.0, np.abs(theirs).max(0, initial=0.0))
        tolerance, within = f"error <= {_LARGEST_ERROR:g}", bool((errors <= bounds).all())
    else:
        least, most = _LEAST_COSINE[precision], _MOST_SHIFT[precision]
        tolerance = f"cosine >= {least}, shift <= {most}"
        within = bool(cosines.min() >= least) and shift <= most
    return VectorAgreement(
        encoder=encoder,
        n=len(finite),
        not_finite=int((~finite).sum()),
        least_cosine=float(cosines.min()),
        median_cosine=float(np.median(cosines)),
        largest_error=float(errors.max(initial=0.0)),
        largest_shift=shift,
        scale=float(np.abs(theirs).max(initial=0.0)),
        tolerance=tolerance,
        agrees=within and bool(finite.all()),
    )


def compare_scores(found: FloatArray, wanted: FloatArray, precision: Precision) -> ScoreAgreement:
    """Compare scores `found` with expected scores `wanted`: (n, 2), one column per class, n >= 1.

    A changed label is an error, unless rounding explains the change; see `ScoreAgreement`. The
    size of the rounding is measured as the change of the log odds in items with an unchanged
    label, because rounding changes the log odds of all items by similar amounts.
    """
    finite = finite_rows(found)
    ours, theirs = found[finite].astype(np.float64), wanted[finite].astype(np.float64)
    flipped = ours.argmax(1) != theirs.argmax(1)
    margins = np.abs(_log_odds(theirs))
    moved = np.abs(_log_odds(ours) - _log_odds(theirs))[~flipped]
    quantile = np.quantile(moved, _ROUNDING_QUANTILE, method="lower") if len(moved) else 0.0
    return ScoreAgreement(
        n=len(finite),
        not_finite=int((~finite).sum()),
        largest_error=float(np.abs(ours - theirs).max(initial=0.0)),
        tolerated=_SCORES_APART[precision],
        flips=int(flipped.sum()),
        explained=int((flipped & (margins <= _ROUNDING_REACH * quantile)).sum()),
    )


def _log_odds(scores: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    logs = np.log(np.maximum(scores, _LEAST_SCORE))
    odds: npt.NDArray[np.float64] = logs[:, 1] - logs[:, 0]
    return odds


def _largest_shift(ours: npt.NDArray[np.float64], theirs: npt.NDArray[np.float64]) -> float:
    if len(theirs) < 2:
        return 0.0
    sizes = np.sqrt((theirs**2).mean(0))
    usual = float(np.median(sizes)) or float(sizes.max()) or 1.0
    spreads = np.maximum(theirs.std(0), _QUIET_CHANNEL * usual)
    return float(np.sqrt((((ours - theirs) / spreads) ** 2).mean(1)).max())


def _cosines(
    one: npt.NDArray[np.float64], other: npt.NDArray[np.float64]
) -> npt.NDArray[np.float64]:
    """Return (n,) cosines of the rows of `one` with the same rows of `other`; 0 for zero rows."""
    lengths = np.linalg.norm(one, axis=1) * np.linalg.norm(other, axis=1)
    cosines: npt.NDArray[np.float64] = (one * other).sum(1) / np.where(lengths > 0, lengths, 1.0)
    return cosines

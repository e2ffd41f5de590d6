"""Agreement of vectors and scores with those of fp32 on the CPU. Pure functions."""

from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from virnucpro.encoders.base import Precision
from virnucpro.store.segment import finite_rows

__all__ = ["ScoreAgreement", "VectorAgreement", "compare_scores", "compare_vectors"]

FloatArray = npt.NDArray[np.float32]

_LARGEST_ERROR: Final = 1e-5
"""Tolerance at fp32, as a share of the largest number of its channel if that is above 1."""

_LEAST_COSINE: Final = {"fp16": 0.9999, "bf16": 0.999}
_MOST_SHIFT: Final = {"fp16": 0.05, "bf16": 0.25}
"""Tolerances of a vector; see `VectorAgreement`. Random ESM-2 8M: shifts of 0.0016 and 0.025."""

_SCORES_APART: Final = {"fp32": 1e-4, "fp16": 0.01, "bf16": 0.05}
"""Tolerances of a score. `mini` at bf16: up to 0.0024."""

_QUIET_CHANNEL: Final = 1 / 8
"""Least spread of a channel in the shift, as a share of the median channel's size."""

_ROUNDING_QUANTILE: Final = 0.9
_ROUNDING_REACH: Final = 3.0
"""Rounding changes log odds by at most three times the 0.9 quantile of the changes. A broken item
can have any change, so the largest one would explain too many flips."""

_LEAST_SCORE: Final = 1e-7
"""Lower scores count as this one in log odds."""


@dataclass(frozen=True, slots=True)
class VectorAgreement:
    """Agreement of vectors with the expected ones.

    Attributes
    ----------
    n, not_finite
        Vectors, and those with a NaN or an infinity; all other attributes ignore these.
    least_cosine, median_cosine
        Between each vector and the expected one; 0 if no vector is finite.
    largest_error
        Largest difference of two numbers.
    largest_shift
        Largest error of a vector relative to the distances between vectors: the root mean square,
        over its channels, of error / spread. Each channel has the same weight; in the cosine a few
        large channels hide the others. 0 for a single vector.
    scale
        Largest expected number.
    tolerance
        The tolerance as text.
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
    """Agreement of a classifier's scores with the expected ones.

    Attributes
    ----------
    n, not_finite
        Items, and those with a score that is NaN or infinite.
    largest_error
        Largest difference of two scores.
    tolerated
        Tolerance of a difference.
    flips
        Items with another label.
    explained
        Flips explained by rounding: the expected log odds are no further from 0 than rounding
        changes those of items with the same label.
    """

    n: int
    not_finite: int
    largest_error: float
    tolerated: float
    flips: int
    explained: int

    @property
    def agrees(self) -> bool:
        """Whether all scores are within the tolerance and rounding explains all flips."""
        near = self.largest_error <= self.tolerated
        return near and self.flips == self.explained and not self.not_finite


def compare_vectors(
    encoder: str, found: FloatArray, wanted: FloatArray, precision: Precision
) -> VectorAgreement:
    """Compare vectors with the expected ones, both (n, dim) with n >= 1.

    fp32 is judged by every error, half precision by the least cosine and the largest shift. A
    vector that is not finite never agrees, although a run would compute it again at fp32.
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
    """Compare scores with the expected ones, both (n, 2) with n >= 1.

    Items with the same label show the size of rounding in log odds: it is about equal for all of
    them, while scores near 0 and 1 hardly change. A flip that needs more is an error.
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
    """Return the cosine of each pair of vectors; 0 for a vector of zeros."""
    lengths = np.linalg.norm(one, axis=1) * np.linalg.norm(other, axis=1)
    cosines: npt.NDArray[np.float64] = (one * other).sum(1) / np.where(lengths > 0, lengths, 1.0)
    return cosines

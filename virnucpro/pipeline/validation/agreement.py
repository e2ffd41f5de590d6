"""Whether numbers agree with those of fp32 on the CPU, and by how much they differ. Pure."""

from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from virnucpro.encoders.base import Precision

__all__ = ["ScoreAgreement", "VectorAgreement", "compare_scores", "compare_vectors"]

FloatArray = npt.NDArray[np.float32]

_LARGEST_ERROR: Final = 1e-5
"""At fp32, of a number; by the largest number of its channel where that is above 1."""

_LEAST_COSINE: Final = {"fp16": 0.9999, "bf16": 0.999}
_MOST_SHIFT: Final = {"fp16": 0.05, "bf16": 0.25}
"""Of a vector; see `VectorAgreement`. Random ESM-2 8M: 0.0016 and 0.025."""

_SCORES_APART: Final = {"fp32": 1e-4, "fp16": 0.01, "bf16": 0.05}
"""Two scores of one class. `mini` moves by up to 0.0024 at bf16."""

_QUIET_CHANNEL: Final = 1 / 8
"""A channel counts as spread at least so far, by the size of a usual number."""

_ROUNDING_QUANTILE: Final = 0.9
_ROUNDING_REACH: Final = 3.0
"""Rounding moves log odds by as much as nine items of ten are moved, and seldom by three times
that: the largest move would let one broken item excuse all others."""

_LEAST_SCORE: Final = 1e-7
"""Scores nearer to 0 are rounded to it: their logarithm says nothing."""


@dataclass(frozen=True, slots=True)
class VectorAgreement:
    """How vectors agree with those that they should be.

    Attributes
    ----------
    n, not_finite
        Vectors, and how many of them hold a number that is not finite; the rest is of the others.
    least_cosine, median_cosine
        Between each vector and its counterpart; 0 where none is finite.
    largest_error
        Largest difference of two numbers.
    largest_shift
        Largest error of a vector, by how far vectors are apart: the root mean square over its
        channels of error by spread. The cosine sees little beside a few channels that are large in
        every vector; here each channel counts the same, and what all vectors have in common not.
        0 where there is one vector.
    scale
        Largest number of the vectors that they should be.
    tolerance
        What is tolerated, in words.
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

    @property
    def problem(self) -> str:
        """What does not agree, in a few words."""
        lost = f"{self.not_finite} of {self.n} vectors not finite, " if self.not_finite else ""
        return (
            f"{self.encoder}: {lost}cosine {self.least_cosine:.4g}, shift {self.largest_shift:.3g} "
            f"where {self.tolerance} is tolerated"
        )


@dataclass(frozen=True, slots=True)
class ScoreAgreement:
    """How a classifier's scores agree with those that they should be.

    Attributes
    ----------
    n, not_finite
        Items, and how many of them have a score that is not finite.
    largest_error
        Largest difference of two scores.
    tolerated
        What it may be.
    flips
        Items that have another label.
    explained
        Those of them that rounding explains: the log odds that the label should be read off lie no
        further from 0 than rounding moves those of items whose label stayed.
    """

    n: int
    not_finite: int
    largest_error: float
    tolerated: float
    flips: int
    explained: int

    @property
    def agrees(self) -> bool:
        """Every score is near, and every label is right, or almost anybody's."""
        near = self.largest_error <= self.tolerated
        return near and self.flips == self.explained and not self.not_finite

    @property
    def problem(self) -> str:
        """What does not agree, in a few words."""
        lost = f"{self.not_finite} of {self.n} not finite, " if self.not_finite else ""
        return (
            f"scores: {lost}{self.largest_error:.3g} apart where {self.tolerated:g} is tolerated, "
            f"labels that rounding does not flip: {self.flips - self.explained}"
        )


def compare_vectors(
    encoder: str, found: FloatArray, wanted: FloatArray, precision: Precision
) -> VectorAgreement:
    """Compare vectors, (n, dim) both and n at least 1, with what they should be.

    At fp32 every error counts, in half precision the least cosine and the largest shift. A vector
    that is not finite never agrees: a run would compute it again at fp32, but that is not this
    precision.
    """
    finite = _finite(found)
    ours, theirs = found[finite].astype(np.float64), wanted[finite].astype(np.float64)
    cosines = _cosines(ours, theirs) if len(ours) else np.zeros(1)
    errors, scale = np.abs(ours - theirs), float(np.abs(theirs).max(initial=0.0))
    shift = _largest_shift(ours, theirs)
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
        scale=scale,
        tolerance=tolerance,
        agrees=within and bool(finite.all()),
    )


def compare_scores(found: FloatArray, wanted: FloatArray, precision: Precision) -> ScoreAgreement:
    """Compare two scores an item, (n, 2) both and n at least 1, with what they should be.

    Items whose label stayed say how large rounding is, in log odds: it moves those about equally,
    and scores near 0 and 1 hardly. A flip that needed more is no rounding.
    """
    finite = _finite(found)
    ours, theirs = found[finite].astype(np.float64), wanted[finite].astype(np.float64)
    flipped = ours.argmax(1) != theirs.argmax(1)
    moved, margins = np.abs(_log_odds(ours) - _log_odds(theirs)), np.abs(_log_odds(theirs))
    return ScoreAgreement(
        n=len(finite),
        not_finite=int((~finite).sum()),
        largest_error=float(np.abs(ours - theirs).max(initial=0.0)),
        tolerated=_SCORES_APART[precision],
        flips=int(flipped.sum()),
        explained=int((flipped & (margins <= _rounding(moved[~flipped]))).sum()),
    )


def _rounding(moved: npt.NDArray[np.float64]) -> float:
    if not len(moved):
        return 0.0
    return _ROUNDING_REACH * float(np.quantile(moved, _ROUNDING_QUANTILE, method="lower"))


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


def _finite(rows: FloatArray) -> npt.NDArray[np.bool_]:
    """Say of each row whether all of its numbers are finite."""
    finite: npt.NDArray[np.bool_] = np.logical_and.reduce(np.isfinite(rows), axis=1)
    return finite


def _cosines(
    one: npt.NDArray[np.float64], other: npt.NDArray[np.float64]
) -> npt.NDArray[np.float64]:
    """Give the cosine of each pair of vectors; 0 where one of them is nothing but zeros."""
    lengths = np.linalg.norm(one, axis=1) * np.linalg.norm(other, axis=1)
    dots = (one * other).sum(1)
    cosines: npt.NDArray[np.float64] = np.divide(
        dots, lengths, np.zeros(len(dots)), where=lengths > 0
    )
    return cosines

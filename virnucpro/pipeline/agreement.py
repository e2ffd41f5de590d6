"""Whether numbers agree with those of fp32 on the CPU, and by how much they differ. Pure."""

from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from virnucpro.encoders.base import Precision

__all__ = ["ScoreAgreement", "VectorAgreement", "compare_scores", "compare_vectors"]

FloatArray = npt.NDArray[np.float32]

_LARGEST_ERROR: Final = 1e-5
"""At fp32, by the largest number of all vectors."""

_LEAST_COSINE: Final = {"fp16": 0.9999, "bf16": 0.999}


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
    scale: float
    tolerance: str
    agrees: bool


@dataclass(frozen=True, slots=True)
class ScoreAgreement:
    """How a classifier's scores agree with those that they should be.

    Attributes
    ----------
    n, not_finite
        Items, and how many of them have a score that is not finite.
    largest_error
        Largest difference of two scores; of items whose label stayed, where any did.
    flips
        Items that have another label.
    explained
        Those of them that rounding explains: the two scores that the label should be read off lie
        no further apart than `largest_error` moves them (which is twice itself: as one rises, the
        other falls).
    """

    n: int
    not_finite: int
    largest_error: float
    flips: int
    explained: int

    @property
    def agrees(self) -> bool:
        """Every label is right, or almost anybody's."""
        return self.flips == self.explained and not self.not_finite


def compare_vectors(
    encoder: str, found: FloatArray, wanted: FloatArray, precision: Precision
) -> VectorAgreement:
    """Compare vectors, (n, dim) both and n at least 1, with what they should be.

    At fp32 the largest error counts, in half precision the least cosine. A vector that is not
    finite never agrees: a run would compute it again at fp32, but that is not this precision.
    """
    finite = _finite(found)
    ours, theirs = found[finite].astype(np.float64), wanted[finite].astype(np.float64)
    cosines = _cosines(ours, theirs) if len(ours) else np.zeros(1)
    error = float(np.abs(ours - theirs).max(initial=0.0))
    scale = float(np.abs(theirs).max(initial=0.0))
    if precision == "fp32":
        tolerance, within = f"error <= {_LARGEST_ERROR:g} of scale", error <= _LARGEST_ERROR * scale
    else:
        least = _LEAST_COSINE[precision]
        tolerance, within = f"cosine >= {least}", bool(cosines.min() >= least)
    return VectorAgreement(
        encoder=encoder,
        n=len(finite),
        not_finite=int((~finite).sum()),
        least_cosine=float(cosines.min()),
        median_cosine=float(np.median(cosines)),
        largest_error=error,
        scale=scale,
        tolerance=tolerance,
        agrees=within and bool(finite.all()),
    )


def compare_scores(found: FloatArray, wanted: FloatArray) -> ScoreAgreement:
    """Compare two scores an item, (n, 2) both and n at least 1, with what they should be.

    Items whose label stayed say how large rounding is; a flip that needed more is no rounding.
    """
    finite = _finite(found)
    ours, theirs = found[finite].astype(np.float64), wanted[finite].astype(np.float64)
    errors = np.abs(ours - theirs).max(1)
    flipped = ours.argmax(1) != theirs.argmax(1)
    largest = float(errors[~flipped].max(initial=0.0))
    margins = np.abs(theirs[:, 1] - theirs[:, 0])
    return ScoreAgreement(
        n=len(finite),
        not_finite=int((~finite).sum()),
        largest_error=largest,
        flips=int(flipped.sum()),
        explained=int((flipped & (margins <= 2 * largest)).sum()),
    )


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

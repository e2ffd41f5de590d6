"""Texts of the cells of tables, and the numbers that the texts stand for."""

from collections.abc import Sequence
from functools import cache
from typing import Final

import numpy as np
import numpy.typing as npt

from virnucpro.arrays import AnyArray, BoolArray, Float32Array, FloatArray, IntegerArray, RealArray

NA = "NA"
"""Text of a missing value."""

_SMALL: Final = 10_000
"""Integers below this are looked up."""
_HALF_WAY: Final = 0.499999
"""Distance from a text, in units of the last decimal, from which on the rounding is checked."""


def integers(numbers: IntegerArray) -> list[str]:
    """Return the text of each integer; small ones are looked up, because that is faster."""
    if numbers.size and numbers.min() >= 0 and numbers.max() < _SMALL:
        texts: list[str] = _small_integers()[numbers].tolist()
        return texts
    return list(map(repr, numbers.tolist()))  # repr is faster than str, which is a type


def counts(values: RealArray) -> list[str]:
    """Return the text of each whole number, `NA` for NaN."""
    missing = np.isnan(values)
    texts = np.array(integers(np.where(missing, 0, values).astype(np.int64)), object)
    texts[missing] = NA
    return list(texts)


def decimals(values: RealArray) -> list[str]:
    """Return the text of each number with four decimals, `NA` for NaN.

    Values from 0 to 1, except those half-way between two texts, are looked up, because formatting
    takes many times as long.
    """
    number, known = _ten_thousandths(values)
    known &= ~np.signbit(values) & (values <= 1)
    texts = _shares()[np.where(known, number, -1).astype(np.int64)]
    for row in np.flatnonzero(~known & ~np.isnan(values)).tolist():
        texts[row] = f"{values[row]:.4f}"
    return list(texts)


def rounded(values: RealArray) -> FloatArray:
    """Return the numbers that the texts of `decimals` stand for."""
    number, known = _ten_thousandths(values)
    result: FloatArray = number / 10_000
    for row in np.flatnonzero(~known & np.isfinite(values)).tolist():
        result[row] = float(f"{values[row]:.4f}")
    return result


def _ten_thousandths(values: RealArray) -> tuple[FloatArray, BoolArray]:
    """Return rounded ten-thousandths, and whether the rounding is that of the decimal text."""
    scaled = values.astype(np.float64) * 10_000
    number = np.rint(scaled)
    return number, np.abs(scaled - number) < _HALF_WAY


@cache
def _small_integers() -> npt.NDArray[np.object_]:
    return np.array([str(number) for number in range(_SMALL)], object)


@cache
def _shares() -> npt.NDArray[np.object_]:
    """Return the texts from 0.0000 to 1.0000, and `NA` as the last."""
    return np.array([*(f"{number / 10_000:.4f}" for number in range(10_001)), NA], object)


def named(names: Sequence[str], codes: AnyArray) -> list[str]:
    """Return the name of each code."""
    texts: list[str] = np.array(names, object)[codes.astype(np.int64)].tolist()
    return texts


def shortest(values: Float32Array) -> list[str]:
    """Return the shortest decimal numbers with the same float32 values."""
    texts: list[str] = values.astype(np.str_).tolist()
    return texts

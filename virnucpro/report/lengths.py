"""Classes of lengths, by which reports and launches count sequences."""

from collections.abc import Mapping
from typing import Any, Final

import numpy as np
import numpy.typing as npt

LENGTH_CLASSES: Final[Mapping[str, int]] = {
    "under 500": 0,
    "500 to 999": 500,
    "1 to 3 kb": 1_000,
    "3 to 10 kb": 3_000,
    "10 to 50 kb": 10_000,
    "50 kb or more": 50_000,
}
"""Least number of bases of each class."""


def length_class(lengths: npt.NDArray[Any]) -> npt.NDArray[np.intp]:
    """Return the position of each length (n,) in `LENGTH_CLASSES`."""
    classes: npt.NDArray[np.intp] = np.digitize(lengths, list(LENGTH_CLASSES.values())[1:])
    return classes

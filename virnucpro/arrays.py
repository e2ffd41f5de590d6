"""Names for the array types that signatures use, all of any shape; joined ranges of numbers."""

from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

IntArray: TypeAlias = NDArray[np.int64]
FloatArray: TypeAlias = NDArray[np.float64]
Float32Array: TypeAlias = NDArray[np.float32]
RealArray: TypeAlias = NDArray[np.floating]
"""Any floating point type, such as stored vectors of float16 or float32."""
BoolArray: TypeAlias = NDArray[np.bool_]
ByteArray: TypeAlias = NDArray[np.uint8]
HashArray: TypeAlias = NDArray[np.uint64]


def joined_ranges(starts: IntArray, counts: IntArray) -> IntArray:
    """Return ``starts[i]`` to ``starts[i] + counts[i] - 1`` for each i, joined; all int64."""
    ends = np.cumsum(counts)
    shift = np.repeat(starts - (ends - counts), counts)
    joined: IntArray = shift + np.arange(len(shift))
    return joined

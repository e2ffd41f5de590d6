"""Names for the array types that signatures use, all of any shape; functions of plain arrays."""

import math
import mmap
import os
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import DTypeLike, NDArray

AnyArray: TypeAlias = NDArray[Any]
IntArray: TypeAlias = NDArray[np.int64]
Int32Array: TypeAlias = NDArray[np.int32]
IntegerArray: TypeAlias = NDArray[np.integer]
"""Any integer type."""
FloatArray: TypeAlias = NDArray[np.float64]
Float32Array: TypeAlias = NDArray[np.float32]
RealArray: TypeAlias = NDArray[np.floating]
"""Any floating point type, such as stored vectors of float16 or float32."""
BoolArray: TypeAlias = NDArray[np.bool_]
ByteArray: TypeAlias = NDArray[np.uint8]
HashArray: TypeAlias = NDArray[np.uint64]

_CACHED_ROWS: Final = 64
_CACHED_NUMBERS: Final = 1 << 14
_ONES: Final = np.uint16(0x7C00)
"""Exponent bits of IEEE 754 binary16, all set in NaN and infinity."""


_LARGE: Final = 1 << 22
"""Bytes from which on an array is a file."""
_AT_ONCE: Final = 1 << 16


def large_array(shape: tuple[int, ...], dtype: DTypeLike) -> AnyArray:
    """Return an array without set values, whose memory the kernel can write to disk if it is large.

    From 4 MiB on, it is mapped from a file without a name in TMPDIR, which ends with the array. If
    TMPDIR has not enough space, it is in memory.
    """
    n_bytes = math.prod(shape) * np.dtype(dtype).itemsize
    if n_bytes >= _LARGE:
        with suppress(OSError), tempfile.TemporaryFile() as file:
            os.posix_fallocate(file.fileno(), 0, n_bytes)  # later, a full disk would be a SIGBUS
            return np.frombuffer(mmap.mmap(file.fileno(), n_bytes), dtype).reshape(shape)
    return np.empty(shape, dtype)


def slices(n: int, most: int | None = None) -> Iterator[slice]:
    """Yield slices of at most `most` positions (65,536 if None), together ``0:n``."""
    most = most or _AT_ONCE
    for first in range(0, n, most):
        yield slice(first, min(first + most, n))


def joined_ranges(starts: IntArray, counts: IntArray) -> IntArray:
    """Return ``starts[i]`` to ``starts[i] + counts[i] - 1`` for each i, joined; all int64."""
    ends = np.cumsum(counts)
    shift = np.repeat(starts - (ends - counts), counts)
    joined: IntArray = shift + np.arange(len(shift))
    return joined


def finite_rows(values: RealArray) -> BoolArray:
    """Return bool (n,): True for each row of `values` in which all numbers are finite.

    `values` is float16 or float32 (n, D). For float16 the exponent bits are tested as integers,
    which is six times as fast as ``np.isfinite``.
    """
    result = np.empty(len(values), np.bool_)
    n_rows = max(_CACHED_ROWS, _CACHED_NUMBERS // max(1, values.shape[1]))
    for first in range(0, len(values), n_rows):
        block = values[first : first + n_rows]
        if block.dtype == np.float16:
            finite = (np.ascontiguousarray(block).view(np.uint16) & _ONES) != _ONES
        else:
            finite = np.isfinite(block)
        result[first : first + n_rows] = finite.all(axis=1)
    return result


def table(row: IntArray, column: NDArray[np.integer], n: int, width: int) -> IntArray:
    """Return ``(n, width)``: how often each pair of a row and a column occurs."""
    return np.bincount(row * width + column, minlength=n * width).reshape(n, width)

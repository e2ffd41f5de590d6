"""Networks of standardised heads, computed in integers: exact sums, equal on all machines.

Standardised features, weights and outputs of hidden layers are rounded to integers of 16 bits. The
product of such matrices is exact in any order of its sums: logits do not depend on the block of
rows, the threads, the processor, or the form of the functions (C or NumPy).
"""

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import cache
from math import gcd
from typing import Any, Final, Self

import numpy as np
from numpy.typing import NDArray

from virnucpro.arrays import Float32Array, FloatArray, Int32Array, RealArray
from virnucpro.compiled import library

STEPS: Final = 512
"""Integers per unit of a standardised feature or of an output of a hidden layer."""

_MOST_HIDDEN: Final = 16_383
"""Largest integer of a hidden layer: its outputs end at 32. Those of `mini` are below 13."""

_MOST_WEIGHT: Final = 32_767
_MOST_SUM: Final = 2**31 - 1
_LEAST: Final = 1e-20
"""Smallest divisor: for outputs whose weights are all 0."""

_PANEL: Final = 16
"""Outputs that the compiled products compute together."""

_LINE: Final = 64
"""Bytes of a line of the cache."""

_FACTORS: Final = np.array(
    [
        *(-2.72614225801306e-10, 2.77068142495902e-08, -2.10102402082508e-06),
        *(-5.69250639462346e-05, -7.34990630326855e-04, -2.95459980854025e-03),
        *(-1.60960333262415e-02, -1.45660718464996e-05, -2.13374055278905e-04),
        *(-1.68282697438203e-03, -7.37332916720468e-03, -1.42647390514189e-02),
    ],
    np.float32,
)
"""Numerator (7) and denominator (5) of ``erf(x) / x`` up to 4: the factors of the powers of x
squared, highest power first. Source: ``generic_fast_erf_float`` of Eigen."""

Integers = NDArray[np.int16]


def one_thread() -> Any:  # noqa: ANN401 - threadpoolctl has no types
    """Return a context in which matrix products of NumPy use one thread.

    Products of the size of heads are slower if threads of the BLAS wait for each other.
    """
    return _blas().limit(limits=1)


@cache
def _blas() -> Any:  # noqa: ANN401
    from threadpoolctl import ThreadpoolController  # noqa: PLC0415 - compiled products need none

    return ThreadpoolController().select(user_api="blas")


@dataclass(frozen=True, slots=True)
class _Layer:
    """A linear layer.

    Attributes
    ----------
    weight
        ``(n_blocks, n_inputs, n_outputs)`` int16: blocks on the diagonal of the matrix. Networks
        that stand side by side in a head do not share numbers, and need no products with zeros.
    packed
        The weights in the order of the compiled products.
    factor, bias
        ``(n_blocks * n_outputs,)`` float64: an output is the sum of its products times its factor,
        plus its bias.
    """

    weight: Integers
    packed: Integers
    factor: FloatArray
    bias: FloatArray

    @classmethod
    def of(cls, matrix: RealArray, bias: RealArray, most_input: float) -> Self:
        """Return the layer of a matrix ``(n_inputs, n_outputs)`` of real numbers.

        Each output has the finest weights with which no sum of products with inputs up to
        `most_input` exceeds 32 bits.
        """
        blocks = _diagonal_blocks(matrix).astype(np.float64)
        sizes = np.abs(blocks)
        # Rounding adds at most 1/2 to a weight.
        room = _MOST_SUM / most_input - blocks.shape[1] / 2
        scale = np.minimum(
            room / np.maximum(sizes.sum(axis=1), _LEAST),
            _MOST_WEIGHT / np.maximum(sizes.max(axis=1), _LEAST),
        )
        weight = np.rint(blocks * scale[:, None]).astype(np.int16)
        factor = 1 / (scale.ravel() * STEPS)
        return cls(weight, _aligned(_packed(weight)), factor, bias.astype(np.float64))

    def sums(self, x: Integers) -> Int32Array:
        """Return the sums of products, ``(n, n_blocks * n_outputs)``.

        `x` is ``(n, n_blocks * n_inputs)``, and has a column more if this number is odd.
        """
        n_blocks, n_inputs, n_outputs = self.weight.shape
        found = np.empty((len(x), n_blocks * n_outputs), np.int32)
        if (compiled := library()) is not None:
            compiled.virnucpro_products(x, *x.shape, self.packed, n_blocks, n_outputs, found)
            return found
        for number, block in enumerate(self.weight):
            own = x[:, number * n_inputs : (number + 1) * n_inputs].astype(np.float64)
            product = own @ block.astype(np.float64)
            found[:, number * n_outputs : (number + 1) * n_outputs] = product
        return found


def _diagonal_blocks(matrix: RealArray) -> RealArray:
    """Return the most equal blocks ``(n, rows, columns)`` with only zeros outside of them.

    Several blocks have an even number of rows, and whole panels of columns.
    """
    rows, columns = matrix.shape
    common, used = gcd(rows // 2, columns // _PANEL), np.ascontiguousarray(matrix != 0)
    n_used = np.count_nonzero(used)
    for n in (n for n in range(common, 1, -1) if not (rows % (2 * n) or columns % (_PANEL * n))):
        in_blocks, shape = np.arange(n), (n, rows // n, n, columns // n)
        if np.count_nonzero(used.reshape(shape)[in_blocks, :, in_blocks]) == n_used:
            return matrix.reshape(shape)[in_blocks, :, in_blocks]
    return matrix[None]


def _packed(weight: Integers) -> Integers:
    """Return the pairs of weights of each panel: ``(n_blocks, n_panels, n_pairs, _PANEL, 2)``."""
    n_blocks, n_inputs, n_outputs = weight.shape
    filled = np.pad(weight, ((0, 0), (0, n_inputs % 2), (0, -n_outputs % _PANEL)))
    pairs = filled.reshape(n_blocks, (n_inputs + 1) // 2, 2, -1, _PANEL)
    return pairs.transpose(0, 3, 1, 4, 2)


def _aligned(values: Integers) -> Integers:
    """Return a contiguous copy at the start of a line of the cache: others are read twice."""
    room = np.empty(values.nbytes + _LINE, np.uint8)
    start = -room.ctypes.data % _LINE
    copy: Integers = np.ndarray(values.shape, values.dtype, room, start)
    copy[:] = values
    return copy


class IntegerNetwork:
    """Layers with GELU between them, for standardised vectors.

    Parameters
    ----------
    mean, scale
        ``(n_inputs,)``: a standardised feature is the feature less the mean, divided by the scale.
    clip
        Largest absolute value of a standardised feature.
    layers
        Matrix ``(n_inputs, n_outputs)`` and bias of each layer.
    """

    def __init__(
        self,
        mean: Float32Array,
        scale: Float32Array,
        clip: float,
        layers: Sequence[tuple[RealArray, RealArray]],
    ) -> None:
        self._standard, self._clip = (mean, scale), clip
        most = [clip * STEPS, *[_MOST_HIDDEN] * (len(layers) - 1)]
        self.layers = [_Layer.of(*layer, most) for layer, most in zip(layers, most, strict=True)]

    @property
    def n_inputs(self) -> int:
        """Length of the vectors."""
        return len(self._standard[0])

    def logits(self, vectors: Float32Array) -> FloatArray:
        """Return the logits of all classes, ``(n, n_classes)``, of vectors ``(n, n_inputs)``.

        Those of a vector with a NaN are NaN.
        """
        x, some_nan = standardised(vectors, *self._standard, self._clip)
        with nullcontext() if library() is not None else one_thread():
            for layer in self.layers[:-1]:
                x = hidden(layer.sums(x), layer.factor, layer.bias)
            last = self.layers[-1]
            logits: FloatArray = last.sums(x) * last.factor + last.bias
        if some_nan:
            logits[np.isnan(vectors).any(axis=1)] = np.nan
        return logits


def standardised(
    x: Float32Array, mean: Float32Array, scale: Float32Array, clip: float
) -> tuple[Integers, bool]:
    """Return the integers of standardised vectors ``(n, dim)``, and whether any number is NaN.

    An odd number of columns gets one of zeros. The integer of NaN is 0.
    """
    found = _even(x.shape)
    if (compiled := library()) is not None:
        assert x.shape[1:] == mean.shape == scale.shape
        x = np.ascontiguousarray(x, np.float32)
        nan = compiled.virnucpro_standardise(x, *x.shape, mean, scale, clip, STEPS, found)
        return found, bool(nan)
    real = (x - mean) / scale
    nan = np.isnan(real)
    steps = np.clip(real, -np.float32(clip), np.float32(clip)) * np.float32(STEPS)
    found[:, : x.shape[1]] = np.rint(np.where(nan, np.float32(0), steps))
    return found, bool(nan.any())


def hidden(sums: Int32Array, factor: FloatArray, bias: FloatArray) -> Integers:
    """Return the integers of the GELU of outputs, ``(n, width)``.

    GELU is ``x * P(normal variable < x)``, in float32 with an error below 3e-6 up to 9. An odd
    number of columns gets one of zeros.
    """
    found = _even(sums.shape)
    factor, bias = factor.astype(np.float32), bias.astype(np.float32)
    if (compiled := library()) is not None:
        numbers = (_FACTORS, _MOST_HIDDEN, STEPS)
        compiled.virnucpro_hidden(sums, *sums.shape, factor, bias, *numbers, found)
        return found
    x = sums.astype(np.float32) * factor + bias
    near = np.clip(x * np.float32(0.5**0.5), np.float32(-4), np.float32(4))
    square: Float32Array = np.square(near)
    above, below = _polynomial(_FACTORS[:7], square), _polynomial(_FACTORS[7:], square)
    gelu = np.float32(0.5) * x * (np.float32(1) + near * above / below)
    steps = np.clip(gelu * np.float32(STEPS), -np.float32(_MOST_HIDDEN), np.float32(_MOST_HIDDEN))
    found[:, : sums.shape[1]] = np.rint(steps)
    return found


def _polynomial(factors: Float32Array, x: Float32Array) -> Float32Array:
    value = np.full_like(x, factors[0])
    for factor in factors[1:]:
        value *= x
        value += factor
    return value


def _even(shape: tuple[int, ...]) -> Integers:
    """Return an array of one row each, with an even number of columns; the last one is 0."""
    n, width = shape
    found = np.empty((n, width + width % 2), np.int16)
    found[:, width:] = 0
    return found

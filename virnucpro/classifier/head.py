"""The head (classifier): computes scores of items from their joined vectors, with NumPy.

A file has the tensors of one of two kinds of heads:

- published: (Linear, BatchNorm1d, ReLU) for each hidden layer, then Linear; two classes
- standardised: features are standardised and clipped, layers with GELU, two or more classes

Both become one `Head`: a batch norm is an affine function, so it is part of its linear layer.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from itertools import pairwise
from math import gcd
from pathlib import Path
from typing import Any, Final, NamedTuple, Self

import numpy as np

from virnucpro.arrays import BoolArray, Float32Array, FloatArray, RealArray
from virnucpro.classifier.calibration import log_ratio
from virnucpro.compiled import library
from virnucpro.encoders.weights.shapes import Shapes, affine, norm, read_tensors, require_shapes
from virnucpro.errors import BundleError

CLASSES: Final = 2
"""Number of classes of a published head: others and virus."""

OUTPUT: Final = "output"
"""Name of the last layer."""

MEAN: Final = "input.mean"
SCALE: Final = "input.scale"
VIRAL: Final = "output.viral"
"""Tensors of a standardised head: mean and scale of each feature, and 1 for each viral class."""

CLIP: Final = 6.0
"""Largest absolute value of a standardised feature; the same in training."""

EPSILON: Final = 1e-5
"""Number that the batch norms of published heads add to the variance: torch's default."""

_BLOCK_ROWS: Final = 256
"""Rows that a head scores together; bounds the memory of hidden layers."""

_HIDDEN_WEIGHT: Final = re.compile(r"hidden\.(\d+)\.linear\.weight")


def linear_of(number: int) -> str:
    """Return the name prefix of a hidden layer's linear tensors: ``hidden.<number>.linear``."""
    return f"hidden.{number}.linear"


def norm_of(number: int) -> str:
    """Return the name prefix of a hidden layer's batch norm tensors: ``hidden.<number>.norm``."""
    return f"hidden.{number}.norm"


def head_shapes(sizes: Sequence[int]) -> Shapes:
    """Return a dict with the name and shape of each tensor of a published head.

    Parameters
    ----------
    sizes
        Lengths of the input vector and of each hidden layer, and the number of classes.
    """
    shapes: Shapes = {}
    for number, (wide, narrow) in enumerate(pairwise(sizes[:-1])):
        shapes |= affine(linear_of(number), wide, narrow)
        shapes |= norm(norm_of(number), narrow)
        shapes |= {f"{norm_of(number)}.running_{what}": (narrow,) for what in ("mean", "var")}
    return shapes | affine(OUTPUT, sizes[-2], sizes[-1])


def layer_sizes(shapes: Mapping[str, tuple[int, ...]], source: Path) -> tuple[int, ...]:
    """Return the layer sizes of a published head (input, hidden layers, classes) from its tensors.

    Raises
    ------
    BundleError
        If the tensors are not the tensors of a head, or the number of classes is not 2.
    """
    found = (match for name in shapes if (match := _HIDDEN_WEIGHT.fullmatch(name)))
    numbers = sorted(int(match[1]) for match in found)
    names = [f"{layer}.weight" for layer in (*map(linear_of, numbers), OUTPUT)]
    weights = [shapes[name] for name in names if name in shapes]
    if len(weights) != len(names) or any(len(shape) != 2 for shape in weights):
        raise BundleError(
            f"{source} is not a classifier: matrices hidden.N.linear.weight or {OUTPUT}.weight "
            "are missing or invalid. Get the bundle again."
        )
    classes = weights[-1][0]
    if classes != CLASSES:
        raise BundleError(
            f"{source}: the classifier has {classes} classes, not {CLASSES} (others, virus). "
            "Use another bundle."
        )
    return (weights[0][1], *(shape[0] for shape in weights))


def standardised_sizes(
    shapes: Mapping[str, tuple[int, ...]], source: Path
) -> tuple[int, ...] | None:
    """Return the layer sizes of a standardised head; None for a head without `MEAN`.

    Raises
    ------
    BundleError
        If a tensor is missing, unknown or of another shape.
    """
    if MEAN not in shapes:
        return None
    n_hidden = sum(re.fullmatch(r"hidden\.\d+\.bias", name) is not None for name in shapes)
    names = _standardised_layers(n_hidden)
    lengths = [shapes[MEAN], *(shapes.get(f"{name}.bias", ()) for name in names)]
    if all(len(length) == 1 for length in lengths):
        sizes = tuple(length[0] for length in lengths)
        wanted: Shapes = {MEAN: sizes[:1], SCALE: sizes[:1], VIRAL: sizes[-1:]}
        for name, (wide, narrow) in zip(names, pairwise(sizes), strict=True):
            wanted |= affine(name, wide, narrow)
        if sizes[-1] >= CLASSES and wanted == dict(shapes):
            return sizes
    raise BundleError(
        f"{source} is not a classifier: tensors are missing, unknown or of other shapes than "
        f"{MEAN}, {SCALE}, hidden.N, {OUTPUT} and {VIRAL} need. Get the bundle again."
    )


def _standardised_layers(n_hidden: int) -> list[str]:
    return [*(f"hidden.{number}" for number in range(n_hidden)), OUTPUT]


def head_sizes(shapes: Mapping[str, tuple[int, ...]], source: Path) -> tuple[int, int]:
    """Return the length of the vectors and the number of classes of a head of either kind.

    Raises
    ------
    BundleError
        If the tensors are not the tensors of a head.
    """
    sizes = standardised_sizes(shapes, source) or layer_sizes(shapes, source)
    return sizes[0], sizes[-1]


class _Layer(NamedTuple):
    """A linear layer in float64.

    Attributes
    ----------
    weight
        ``(n_blocks, n_inputs, n_outputs)``: blocks on the diagonal of the matrix. Networks that
        stand side by side in a head do not share numbers, and need no products with zeros.
    bias
        ``(n_blocks * n_outputs,)``.
    """

    weight: FloatArray
    bias: FloatArray

    @classmethod
    def of(cls, weight: RealArray, bias: RealArray) -> Self:
        """Return the layer of a matrix ``(n_inputs, n_outputs)`` and a bias."""
        blocks = _diagonal_blocks(weight)
        return cls(np.ascontiguousarray(blocks, np.float64), bias.astype(np.float64))

    def outputs(self, x: FloatArray) -> FloatArray:
        """Return ``(n, n_blocks * n_outputs)`` of inputs ``(n, n_blocks * n_inputs)``."""
        n_blocks, n_inputs, n_outputs = self.weight.shape
        found = np.empty((len(x), n_blocks, n_outputs))
        for number, block in enumerate(self.weight):
            found[:, number] = x[:, number * n_inputs : (number + 1) * n_inputs] @ block
        result = found.reshape(len(x), -1)
        result += self.bias
        return result


def _diagonal_blocks(matrix: RealArray) -> RealArray:
    """Return the most equal blocks ``(n, rows, columns)`` with only zeros outside of them."""
    rows, columns = matrix.shape
    common, used = gcd(rows, columns), np.ascontiguousarray(matrix != 0)
    n_used = np.count_nonzero(used)
    for n in (n for n in range(common, 1, -1) if common % n == 0):
        in_blocks, shape = np.arange(n), (n, rows // n, n, columns // n)
        if np.count_nonzero(used.reshape(shape)[in_blocks, :, in_blocks]) == n_used:
            blocks: RealArray = matrix.reshape(shape)[in_blocks, :, in_blocks]
            return blocks
    return matrix[None]


class Head:
    """Multilayer perceptron that scores vectors.

    Attributes
    ----------
    layers
        Linear layers, from the first to the output.
    activation
        Function between two layers, of float64 numbers.
    viral
        (n_classes,) bool: which classes are viral.
    standard
        Mean and scale of each feature; None for vectors that are used as they are.
    """

    def __init__(
        self,
        layers: Sequence[_Layer],
        activation: Callable[[FloatArray], FloatArray],
        viral: BoolArray,
        standard: tuple[Float32Array, Float32Array] | None = None,
    ) -> None:
        self.layers, self.activation, self.viral = layers, activation, viral
        self.standard = standard

    @property
    def n_inputs(self) -> int:
        """Length of the vectors."""
        n_blocks, n_inputs, _ = self.layers[0].weight.shape
        return int(n_blocks * n_inputs)

    @property
    def n_scores(self) -> int:
        """Number of scores of an item: two, and one for each class if there are more than two."""
        n_classes = len(self.viral)
        return CLASSES + (n_classes if n_classes > CLASSES else 0)

    def logits(self, vectors: RealArray) -> FloatArray:
        """Return the logits of all classes, ``(n, n_classes)``, of vectors ``(n, dim)``."""
        given = vectors.astype(np.float32, copy=False)
        standard = self.standard
        values = given.astype(np.float64) if standard is None else standardised(given, *standard)
        for layer in self.layers[:-1]:
            values = self.activation(layer.outputs(values))
        return self.layers[-1].outputs(values)

    def scores(self, vectors: RealArray) -> Float32Array:
        """Return the scores of items: probabilities of others and virus, and of each class.

        The probability of virus is the sum over all viral classes. The scores of an item do not
        depend on the other items, the threads or the machine: matrix products of other heights or
        other kernels round differently, so all is computed in float64, and float32 numbers differ
        only where such a rounding, about 1e-15, decides. One thread computes: products of this size
        are slower if threads of the BLAS wait for each other.

        Parameters
        ----------
        vectors
            ``(n, dim)`` of any floating-point type, one row per item.

        Returns
        -------
        ``(n, 2)`` float32, or ``(n, 2 + n_classes)`` for more than two classes
        """
        scores = np.empty((len(vectors), self.n_scores), np.float32)
        with (
            _blas().limit(limits=1),
            np.errstate(invalid="ignore", over="ignore"),  # of vectors that are not finite
        ):
            for start in range(0, len(vectors), _BLOCK_ROWS):
                block = slice(start, start + _BLOCK_ROWS)
                scores[block] = self._scores(self.logits(vectors[block]))
        return scores

    def logit(self, vectors: RealArray) -> Float32Array:
        """Return the log of virus over others of each vector, ``(n,)``, within `LOGIT_LIMIT`."""
        others, virus = self.scores(vectors)[:, :2].astype(np.float64).T
        return log_ratio(others, virus).astype(np.float32)

    def _scores(self, logits: FloatArray) -> FloatArray:
        shares = np.exp(logits - logits.max(axis=1, keepdims=True))
        shares /= shares.sum(axis=1, keepdims=True)
        sides = [shares[:, kind].sum(axis=1) for kind in (~self.viral, self.viral)]
        pair = np.stack(sides, axis=1)
        return np.concatenate([pair, shares], axis=1) if shares.shape[1] > CLASSES else pair


@cache
def _blas() -> Any:  # noqa: ANN401 - threadpoolctl has no types
    """Return the controller of the threads of NumPy's matrix products."""
    from threadpoolctl import ThreadpoolController  # noqa: PLC0415 - commands read heads' shapes only

    return ThreadpoolController().select(user_api="blas")


def standardised(x: Float32Array, mean: Float32Array, scale: Float32Array) -> FloatArray:
    """Return vectors ``(n, dim)`` less the mean, divided by the scale, within `CLIP`."""
    if (compiled := library()) is None:
        clipped: Float32Array = np.clip((x - mean) / scale, -CLIP, CLIP)
        return clipped.astype(np.float64)
    assert x.shape[1:] == mean.shape == scale.shape
    x, found = np.ascontiguousarray(x, np.float32), np.empty(x.shape)
    compiled.virnucpro_standardise(x, *x.shape, mean, scale, CLIP, found)
    return found


def _relu(x: FloatArray) -> FloatArray:
    return np.maximum(x, 0)


_ERF_ABOVE: Final = (
    *(-2.72614225801306e-10, 2.77068142495902e-08, -2.10102402082508e-06, -5.69250639462346e-05),
    *(-7.34990630326855e-04, -2.95459980854025e-03, -1.60960333262415e-02),
)
_ERF_BELOW: Final = (
    *(-1.45660718464996e-05, -2.13374055278905e-04, -1.68282697438203e-03, -7.37332916720468e-03),
    -1.42647390514189e-02,
)
"""Numerator and denominator of ``erf(x) / x`` up to 4: the factors of the powers of x
squared, highest power first. Source: ``generic_fast_erf_float`` of Eigen."""

_FACTORS: Final = np.array(_ERF_ABOVE), np.array(_ERF_BELOW)


def gelu(x: FloatArray) -> FloatArray:
    """Return the GELU, ``x * P(normal variable < x)``, with an error below 1.5e-6.

    The numbers in `x` are lost.
    """
    if (compiled := library()) is not None:
        found = np.ascontiguousarray(x, np.float64)
        compiled.virnucpro_gelu(found, found.size, *_FACTORS)
        return found
    near = np.clip(x * 0.5**0.5, -4, 4)
    square = near * near
    erf = near * _polynomial(_ERF_ABOVE, square) / _polynomial(_ERF_BELOW, square)
    result: FloatArray = 0.5 * x * (1 + erf)
    return result


def _polynomial(factors: Sequence[float], x: FloatArray) -> FloatArray:
    value = np.full_like(x, factors[0])
    for factor in factors[1:]:
        value *= x
        value += factor
    return value


def load_head(path: Path) -> Head:
    """Load a head from a safetensors file; the names and shapes of its tensors tell its kind.

    Raises
    ------
    BundleError
        If the file cannot be read or does not contain a head, a number is NaN or infinite, a scale
        is not positive, or all classes are viral or none.
    """
    tensors = read_tensors(path)
    shapes = {name: tensor.shape for name, tensor in tensors.items()}
    sizes = standardised_sizes(shapes, path)
    if sizes is None:
        published = layer_sizes(shapes, path)
        require_shapes(head_shapes(published), shapes, path)
    for name, tensor in tensors.items():
        if not np.isfinite(tensor).all():
            raise BundleError(
                f"{path}: tensor {name!r} contains NaN or infinite numbers. Get the bundle again."
            )
    if sizes is None:
        hidden = [_with_norm(tensors, number) for number in range(len(published) - 2)]
        return Head([*hidden, _layer(tensors, OUTPUT)], _relu, np.array([False, True]))
    if not (tensors[SCALE] > 0).all():
        raise BundleError(f"{path}: a scale is not positive. Get the bundle again.")
    viral = tensors[VIRAL] > 0
    if viral.all() or not viral.any():
        raise BundleError(f"{path}: all classes are viral, or none is. Get the bundle again.")
    layers = [_layer(tensors, name) for name in _standardised_layers(len(sizes) - 2)]
    mean, scale = (np.ascontiguousarray(tensors[name], np.float32) for name in (MEAN, SCALE))
    return Head(layers, gelu, viral, (mean, scale))


def _layer(tensors: Mapping[str, Float32Array], name: str) -> _Layer:
    return _Layer.of(tensors[f"{name}.weight"].T, tensors[f"{name}.bias"])


def _with_norm(tensors: Mapping[str, Float32Array], number: int) -> _Layer:
    """Return a hidden layer and its batch norm as one linear layer."""
    weight, bias = (tensors[f"{linear_of(number)}.{what}"] for what in ("weight", "bias"))
    gain, shift, mean, variance = (
        tensors[f"{norm_of(number)}.{what}"].astype(np.float64)
        for what in ("weight", "bias", "running_mean", "running_var")
    )
    factor = gain / np.sqrt(variance + EPSILON)
    return _Layer.of(weight.T * factor, (bias - mean) * factor + shift)

"""The head (classifier): computes scores of items from their joined vectors, with NumPy.

A file has the tensors of one of two kinds of heads:

- published: (Linear, BatchNorm1d, ReLU) for each hidden layer, then Linear; two classes
- standardised: features are standardised and clipped, layers with GELU, two or more classes

Both become one `Head`. A batch norm is an affine function, so it is part of its linear layer.
"""

import re
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np

from virnucpro.arrays import BoolArray, Float32Array, FloatArray, RealArray, slices
from virnucpro.classifier.calibration import log_ratio
from virnucpro.classifier.integer_network import IntegerNetwork, one_thread
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

_MOST: Final = 1e30
"""Largest number of a tensor: products of larger ones may be infinite."""

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
    """A linear layer of a published head, in float64.

    Attributes
    ----------
    weight
        ``(n_inputs, n_outputs)``.
    bias
        ``(n_outputs,)``.
    """

    weight: FloatArray
    bias: FloatArray


class _PublishedNetwork:
    """Layers with ReLU, computed in float64.

    Matrix products of other heights or other kernels round differently, about 1e-15 in float64:
    float32 scores differ only where such a rounding decides. One thread computes: products of this
    size are slower if threads of the BLAS wait for each other.
    """

    def __init__(self, layers: Sequence[_Layer]) -> None:
        self._layers = layers

    @property
    def n_inputs(self) -> int:
        """Length of the vectors."""
        return len(self._layers[0].weight)

    def logits(self, vectors: Float32Array) -> FloatArray:
        """Return the logits of all classes, ``(n, n_classes)``, of vectors ``(n, n_inputs)``."""
        values = vectors.astype(np.float64)
        with one_thread():
            for layer in self._layers[:-1]:
                values = np.maximum(values @ layer.weight + layer.bias, 0)
            return values @ self._layers[-1].weight + self._layers[-1].bias


class Head:
    """Multilayer perceptron that scores vectors.

    Attributes
    ----------
    network
        Computes the logits.
    viral
        (n_classes,) bool: which classes are viral.
    """

    def __init__(self, network: _PublishedNetwork | IntegerNetwork, viral: BoolArray) -> None:
        self.network, self.viral = network, viral

    @property
    def n_inputs(self) -> int:
        """Length of the vectors."""
        return self.network.n_inputs

    @property
    def n_scores(self) -> int:
        """Number of scores of an item: two, and one for each class if there are more than two."""
        n_classes = len(self.viral)
        return CLASSES + (n_classes if n_classes > CLASSES else 0)

    def scores(self, vectors: RealArray) -> Float32Array:
        """Return the scores of items: probabilities of others and virus, and of each class.

        The probability of virus is the sum over all viral classes. The scores of an item do not
        depend on the other items, the threads or the machine: see `IntegerNetwork` and
        `_PublishedNetwork`.

        Parameters
        ----------
        vectors
            ``(n, dim)`` of any floating-point type, one row per item.

        Returns
        -------
        ``(n, 2)`` float32, or ``(n, 2 + n_classes)`` for more than two classes
        """
        scores = np.empty((len(vectors), self.n_scores), np.float32)
        with np.errstate(invalid="ignore", over="ignore"):  # of vectors that are not finite
            for block in slices(len(vectors), _BLOCK_ROWS):
                given = vectors[block].astype(np.float32, copy=False)
                scores[block] = self._scores(self.network.logits(given))
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


def load_head(path: Path) -> Head:
    """Load a head from a safetensors file; the names and shapes of its tensors tell its kind.

    Raises
    ------
    BundleError
        If the file cannot be read or does not contain a head, a number is NaN or beyond `_MOST`, a
        scale
        is not positive, or all classes are viral or none.
    """
    tensors = read_tensors(path)
    shapes = {name: tensor.shape for name, tensor in tensors.items()}
    sizes = standardised_sizes(shapes, path)
    if sizes is None:
        published = layer_sizes(shapes, path)
        require_shapes(head_shapes(published), shapes, path)
    for name, tensor in tensors.items():
        if not (np.abs(tensor) <= _MOST).all():
            raise BundleError(
                f"{path}: tensor {name!r} contains NaN, or numbers beyond {_MOST:g}. Get the "
                "bundle again."
            )
    if sizes is None:
        hidden = [_with_norm(tensors, number) for number in range(len(published) - 2)]
        network = _PublishedNetwork([*hidden, _Layer(*_linear(tensors, OUTPUT))])
        return Head(network, np.array([False, True]))
    if not (tensors[SCALE] > 0).all():
        raise BundleError(f"{path}: a scale is not positive. Get the bundle again.")
    viral = tensors[VIRAL] > 0
    if viral.all() or not viral.any():
        raise BundleError(f"{path}: all classes are viral, or none is. Get the bundle again.")
    layers = [_linear(tensors, name) for name in _standardised_layers(len(sizes) - 2)]
    mean, scale = (np.ascontiguousarray(tensors[name], np.float32) for name in (MEAN, SCALE))
    return Head(IntegerNetwork(mean, scale, CLIP, layers), viral)


def _linear(tensors: Mapping[str, Float32Array], name: str) -> tuple[FloatArray, FloatArray]:
    weight, bias = (tensors[f"{name}.{what}"].astype(np.float64) for what in ("weight", "bias"))
    return np.ascontiguousarray(weight.T), bias


def _with_norm(tensors: Mapping[str, Float32Array], number: int) -> _Layer:
    """Return a hidden layer and its batch norm as one linear layer."""
    weight, bias = (tensors[f"{linear_of(number)}.{what}"] for what in ("weight", "bias"))
    gain, shift, mean, variance = (
        tensors[f"{norm_of(number)}.{what}"].astype(np.float64)
        for what in ("weight", "bias", "running_mean", "running_var")
    )
    factor = gain / np.sqrt(variance + EPSILON)
    return _Layer(weight.T * factor, (bias - mean) * factor + shift)

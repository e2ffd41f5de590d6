"""Names and shapes of the tensors of a head (classifier); this module does not import torch."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Final

from virnucpro.encoders.weights.shapes import Shapes, affine, norm
from virnucpro.errors import BundleError

__all__ = [
    "CLASSES",
    "MEAN",
    "OUTPUT",
    "SCALE",
    "VIRAL",
    "StandardisedShape",
    "head_shapes",
    "head_sizes",
    "layer_sizes",
    "linear_of",
    "norm_of",
    "standardised_shape",
]

CLASSES: Final = 2
"""Number of classes: others and virus."""

OUTPUT: Final = "output"
"""Name of the last layer in the state dict."""

MEAN: Final = "input.mean"
SCALE: Final = "input.scale"
VIRAL: Final = "output.viral"
"""Tensors of a standardised head: mean and scale of each feature, and 1 for each viral class."""

_HIDDEN_WEIGHT: Final = re.compile(r"hidden\.(\d+)\.linear\.weight")


def linear_of(number: int) -> str:
    """Return the name prefix of a hidden layer's linear tensors: ``hidden.<number>.linear``."""
    return f"hidden.{number}.linear"


def norm_of(number: int) -> str:
    """Return the name prefix of a hidden layer's batch norm tensors: ``hidden.<number>.norm``."""
    return f"hidden.{number}.norm"


def head_shapes(sizes: Sequence[int]) -> Shapes:
    """Return a dict with the name and shape of each tensor of a head.

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
    """Return the layer sizes of a head (input, hidden layers, classes) from its tensor shapes.

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


@dataclass(frozen=True, slots=True)
class StandardisedShape:
    """Layers of a standardised head.

    Attributes
    ----------
    sizes
        Lengths of the input vector and of each hidden layer, and the number of classes.
    """

    sizes: tuple[int, ...]

    @property
    def layers(self) -> tuple[str, ...]:
        """Name prefixes of the layers' weights and biases, from the first to the output."""
        return (*(f"hidden.{number}" for number in range(len(self.sizes) - 2)), OUTPUT)

    @property
    def tensors(self) -> Shapes:
        """Name and shape of each tensor."""
        shapes: Shapes = {MEAN: self.sizes[:1], SCALE: self.sizes[:1], VIRAL: self.sizes[-1:]}
        for name, (wide, narrow) in zip(self.layers, pairwise(self.sizes), strict=True):
            shapes |= affine(name, wide, narrow)
        return shapes


def standardised_shape(
    shapes: Mapping[str, tuple[int, ...]], source: Path
) -> StandardisedShape | None:
    """Return the layers of a standardised head; None for a head without `MEAN`.

    Raises
    ------
    BundleError
        If a tensor is missing, unknown or of another shape.
    """
    if MEAN not in shapes:
        return None
    n_hidden = sum(re.fullmatch(r"hidden\.\d+\.bias", name) is not None for name in shapes)
    names = [*(f"hidden.{number}.bias" for number in range(n_hidden)), f"{OUTPUT}.bias"]
    sizes = [shapes[MEAN], *(shapes.get(name, ()) for name in names)]
    if all(len(size) == 1 for size in sizes):
        shape = StandardisedShape(tuple(size[0] for size in sizes))
        if shape.sizes[-1] >= CLASSES and shape.tensors == dict(shapes):
            return shape
    raise BundleError(
        f"{source} is not a classifier: tensors are missing, unknown or of other shapes than "
        f"{MEAN}, {SCALE}, hidden.N, {OUTPUT} and {VIRAL} need. Get the bundle again."
    )


def head_sizes(shapes: Mapping[str, tuple[int, ...]], source: Path) -> tuple[int, int]:
    """Return the length of the vectors and the number of classes of a head of either kind.

    Raises
    ------
    BundleError
        If the tensors are not the tensors of a head.
    """
    standardised = standardised_shape(shapes, source)
    if standardised is None:
        return layer_sizes(shapes, source)[0], CLASSES
    return standardised.sizes[0], standardised.sizes[-1]

"""Names and shapes of the tensors of a head (classifier); this module does not import torch."""

import re
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Final

from virnucpro.encoders.weights.shapes import Shapes, affine, norm
from virnucpro.errors import BundleError

__all__ = ["CLASSES", "OUTPUT", "head_shapes", "layer_sizes", "linear_of", "norm_of"]

CLASSES: Final = 2
"""Number of classes: others and virus."""

OUTPUT: Final = "output"
"""Name of the last layer in the state dict."""

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

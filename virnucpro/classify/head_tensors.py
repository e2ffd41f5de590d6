"""Names and shapes of a head's tensors; free of torch."""

import re
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Final

from virnucpro.encoders.shapes import Shapes, affine, norm
from virnucpro.errors import BundleError

__all__ = ["CLASSES", "OUTPUT", "head_shapes", "layer_sizes", "linear_of", "norm_of"]

CLASSES: Final = 2
"""Others, virus."""

OUTPUT: Final = "output"
"""The last layer."""

_HIDDEN_WEIGHT: Final = re.compile(r"hidden\.(\d+)\.linear\.weight")


def linear_of(number: int) -> str:
    """Name the linear layer of a hidden layer."""
    return f"hidden.{number}.linear"


def norm_of(number: int) -> str:
    """Name the batch norm of a hidden layer."""
    return f"hidden.{number}.norm"


def head_shapes(sizes: Sequence[int]) -> Shapes:
    """Give name and shape of all tensors of a head.

    Parameters
    ----------
    sizes
        Numbers of a vector, of each hidden layer, and of classes.
    """
    shapes: Shapes = {}
    for number, (wide, narrow) in enumerate(pairwise(sizes[:-1])):
        shapes |= affine(linear_of(number), wide, narrow)
        shapes |= norm(norm_of(number), narrow)
        shapes |= {f"{norm_of(number)}.running_{what}": (narrow,) for what in ("mean", "var")}
    return shapes | affine(OUTPUT, sizes[-2], sizes[-1])


def layer_sizes(shapes: Mapping[str, tuple[int, ...]], source: Path) -> tuple[int, ...]:
    """Read the layer sizes off a head's tensors: numbers of a vector, hidden layers, classes.

    Raises
    ------
    BundleError
        When the tensors are not those of a head, or the classes are not two.
    """
    found = (match for name in shapes if (match := _HIDDEN_WEIGHT.fullmatch(name)))
    numbers = sorted(int(match[1]) for match in found)
    names = [f"{layer}.weight" for layer in (*map(linear_of, numbers), OUTPUT)]
    weights = [shapes[name] for name in names if name in shapes]
    if len(weights) != len(names) or any(len(shape) != 2 for shape in weights):
        raise BundleError(
            f"{source}: holds no head; a head has matrices hidden.N.linear.weight and "
            f"{OUTPUT}.weight. Get the bundle again."
        )
    classes = weights[-1][0]
    if classes != CLASSES:
        raise BundleError(
            f"{source}: the head tells {classes} classes apart, not {CLASSES} "
            "(others, virus). Use a bundle that was made for this job."
        )
    return (weights[0][1], *(shape[0] for shape in weights))

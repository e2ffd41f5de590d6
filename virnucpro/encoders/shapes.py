"""Names and shapes of tensors, as state dicts have them; free of torch."""

from pathlib import Path
from typing import TypeAlias

from virnucpro.errors import BundleError

__all__ = ["Shapes", "affine", "norm", "require_layers"]

Shapes: TypeAlias = dict[str, tuple[int, ...]]


def affine(name: str, inputs: int, outputs: int) -> Shapes:
    """Give the two tensors of a linear layer."""
    return {f"{name}.weight": (outputs, inputs), f"{name}.bias": (outputs,)}


def norm(name: str, width: int) -> Shapes:
    """Give the two tensors of a layer norm."""
    return {f"{name}.weight": (width,), f"{name}.bias": (width,)}


def require_layers(n_layers: int, n_tensors: int, source: Path) -> None:
    """Refuse more layers than tensors, before a model of so many parts is built.

    Raises
    ------
    BundleError
        When there are more; the message names `source`.
    """
    if n_layers > n_tensors:
        raise BundleError(
            f"{source}: the encoder is said to have {n_layers:,} layers, and its weights are "
            f"{n_tensors:,} tensors in all. Get settings and weights again, of the same model."
        )

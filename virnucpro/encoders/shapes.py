"""Names and shapes of tensors, as state dicts have them; free of torch."""

from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import TypeAlias, TypeVar

from virnucpro.errors import BundleError

__all__ = ["Shapes", "affine", "norm", "require_layers", "require_shapes", "without"]

T = TypeVar("T")

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


def without(tensors: Mapping[str, T], prefixes: tuple[str, ...]) -> dict[str, T]:
    """Leave out the tensors whose names begin with one of `prefixes`."""
    return {name: tensor for name, tensor in tensors.items() if not name.startswith(prefixes)}


def require_shapes(
    wanted: Mapping[str, tuple[int, ...]],
    found: Mapping[str, tuple[int, ...]],
    source: Path,
    may_lack: Collection[str] = (),
) -> None:
    """Make sure that tensors out of `source` are those of a model, by name and shape.

    Parameters
    ----------
    may_lack
        Names among `wanted` that need not be there.

    Raises
    ------
    BundleError
        When a tensor is missing, is one too many, or has another shape.
    """
    _require_names(wanted.keys(), found.keys(), source, may_lack)
    for name, shape in found.items():
        if shape != wanted[name]:
            raise BundleError(
                f"{source}: tensor {name!r} has shape {shape}, and the settings ask for "
                f"{wanted[name]}. Settings and weights are of different models: get both again."
            )


def _require_names(
    wanted: Collection[str], found: Collection[str], source: Path, may_lack: Collection[str]
) -> None:
    missing = sorted(set(wanted) - set(found) - set(may_lack))
    surplus = sorted(set(found) - set(wanted))
    if missing:
        raise BundleError(
            f"{source}: {len(missing)} of {len(wanted)} tensors are missing: {_some(missing)}. "
            "Are these the weights of this architecture and size? Get the file again."
        )
    if surplus:
        raise BundleError(
            f"{source}: {len(surplus)} tensors belong to no part of the model: {_some(surplus)}. "
            "Are these the weights of this architecture and size? Get the file again."
        )


def _some(names: Iterable[str]) -> str:
    first, *rest = names
    return f"{first!r} and {len(rest)} more" if rest else repr(first)

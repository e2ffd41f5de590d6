"""Names and shapes of tensors: expected, read from a file, and compared. Does not import torch."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, TypeAlias, TypeVar

import numpy as np
from safetensors import SafetensorError, safe_open

from virnucpro.arrays import Float32Array
from virnucpro.errors import BundleError

T = TypeVar("T")

Shapes: TypeAlias = dict[str, tuple[int, ...]]


def affine(name: str, inputs: int, outputs: int) -> Shapes:
    """Return the shapes of the weight and the bias of the linear layer `name`, by tensor name."""
    return {f"{name}.weight": (outputs, inputs), f"{name}.bias": (outputs,)}


def norm(name: str, width: int) -> Shapes:
    """Return the shapes of the weight and the bias of the layer norm `name`, by tensor name."""
    return {f"{name}.weight": (width,), f"{name}.bias": (width,)}


def without(tensors: Mapping[str, T], prefixes: tuple[str, ...]) -> dict[str, T]:
    """Return `tensors` without the tensors whose names begin with one of `prefixes`."""
    return {name: tensor for name, tensor in tensors.items() if not name.startswith(prefixes)}


def read_shapes(path: Path, *, quantised: bool = True) -> Shapes:
    """Return the shape of every tensor by name, from the header of a safetensors file.

    Raises
    ------
    BundleError
        If the file cannot be read, or is not a safetensors file. Without `quantised`, also if a
        tensor has numbers of one byte.
    """
    found: Shapes = {}
    with _opened(path) as tensors:
        for name in _names(tensors):
            tensor = tensors.get_slice(name)
            if not quantised and tensor.get_dtype().startswith(_ONE_BYTE):
                raise BundleError(
                    f"{path}: tensor {name!r} has the type {tensor.get_dtype()}: quantised weights "
                    "are not supported. Get the original ones."
                )
            found[name] = tuple(tensor.get_shape())
    return found


def stored_tensors(path: Path, framework: str = "numpy") -> dict[str, Any]:
    """Read every tensor of a safetensors file as it is stored, as array or as tensor (``pt``).

    Raises
    ------
    BundleError
        If the file is missing, damaged or not a safetensors file.
    """
    with _opened(path, framework) as tensors:
        return {name: tensors.get_tensor(name) for name in _names(tensors)}


def read_tensors(path: Path, only: Sequence[str] = ()) -> dict[str, Float32Array]:
    """Read every tensor of a safetensors file, or `only` some, as float32, without torch.

    Raises
    ------
    BundleError
        If the file is missing, damaged or not a safetensors file, or a tensor is not of the type
        float16, float32 or float64.
    """
    found: dict[str, Float32Array] = {}
    with _opened(path) as tensors:
        for name in only or _names(tensors):
            kind = tensors.get_slice(name).get_dtype()
            if kind not in _FLOATS:
                raise BundleError(
                    f"{path}: tensor {name!r} has the type {kind}, not {', '.join(_FLOATS)}. Get "
                    "the file again."
                )
            found[name] = tensors.get_tensor(name).astype(np.float32, copy=False)
    return found


_FLOATS: Final = ("F16", "F32", "F64")
"""Names of types in a safetensors file."""
_ONE_BYTE: Final = ("I8", "U8", "F8")
"""First letters of the types of numbers of one byte."""


def _names(tensors: Any) -> list[str]:  # noqa: ANN401 - the handle has no type
    names: list[str] = tensors.keys()
    return names


@contextmanager
def _opened(path: Path, framework: str = "numpy") -> Iterator[Any]:
    """Open a safetensors file for NumPy, or for torch (``pt``)."""
    try:
        with safe_open(path, framework=framework) as tensors:
            yield tensors
    except (OSError, SafetensorError) as error:
        raise BundleError(
            f"{path}: cannot be read as safetensors ({error}). Get the file again."
        ) from error


def require_layers(n_layers: int, n_tensors: int, source: Path) -> None:
    """Raise BundleError if the settings have more layers than the weights have tensors.

    Raises
    ------
    BundleError
        If there are more layers than tensors; the message names `source`.
    """
    if n_layers > n_tensors:
        raise BundleError(
            f"{source}: the settings ask for {n_layers:,} layers, but the weights have only "
            f"{n_tensors:,} tensors. Get the settings and weights of the same model."
        )


def require_shapes(
    wanted: Mapping[str, tuple[int, ...]],
    found: Mapping[str, tuple[int, ...]],
    source: Path,
    optional: Collection[str] = (),
) -> None:
    """Raise BundleError if names or shapes of tensors differ from those of a model.

    Parameters
    ----------
    wanted
        Shapes of the model's tensors by name.
    found, source
        Shapes in the file by tensor name, and the file, for the message.
    optional
        Names in `wanted` that the file need not contain.

    Raises
    ------
    BundleError
        If a tensor is missing, unknown, or of another shape.
    """
    missing = sorted(wanted.keys() - found.keys() - set(optional))
    unknown = sorted(found.keys() - wanted.keys())
    for names, all_names, problem in (
        (missing, wanted, "missing"),
        (unknown, found, "not part of the model"),
    ):
        if names:
            more = f" and {len(names) - 1} more" if len(names) > 1 else ""
            raise BundleError(
                f"{source}: {len(names)} of {len(all_names)} tensors are {problem}: "
                f"{names[0]!r}{more}. Check the architecture and the size of the model, or get "
                "the file again."
            )
    for name, shape in found.items():
        if shape != wanted[name]:
            raise BundleError(
                f"{source}: tensor {name!r} has shape {shape}, but the settings ask for "
                f"{wanted[name]}. Settings and weights are of different models: get both again."
            )

"""Tensors from a file into a module, with every name and shape checked."""

from collections.abc import Collection, Iterable, Mapping
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import nn

from virnucpro.errors import BundleError

__all__ = ["check", "check_layout", "fill", "read_safetensors", "without"]


def read_safetensors(path: Path) -> dict[str, torch.Tensor]:
    """Read every tensor of a safetensors file onto the CPU.

    Raises
    ------
    BundleError
        When the file is missing or is no whole safetensors file.
    """
    try:
        return load_file(path)
    except (OSError, SafetensorError) as error:
        raise BundleError(
            f"{path}: cannot be read as safetensors ({error}). Get the file again."
        ) from error


def without(
    tensors: Mapping[str, torch.Tensor], prefixes: tuple[str, ...]
) -> dict[str, torch.Tensor]:
    """Leave out the tensors whose names begin with one of `prefixes`."""
    return {name: tensor for name, tensor in tensors.items() if not name.startswith(prefixes)}


def check_layout(
    shapes: Mapping[str, tuple[int, ...]], tensors: Mapping[str, torch.Tensor], source: Path
) -> None:
    """Make sure that tensors out of `source` are those of a model, by name, shape and type.

    Raises
    ------
    BundleError
        When a tensor is missing, is one too many, has another shape, or holds no floating-point
        numbers.
    """
    _check_names(shapes.keys(), tensors.keys(), source)
    _check_shapes(shapes, tensors, source)


def check(
    shapes: Mapping[str, tuple[int, ...]], tensors: Mapping[str, torch.Tensor], source: Path
) -> None:
    """Make sure of the same, and that every number is finite: one that is not spoils all vectors.

    Raises
    ------
    BundleError
        As `check_layout`, and when a number is infinite or none.
    """
    check_layout(shapes, tensors, source)
    for name, tensor in tensors.items():
        # both ends are infinite or none if any number is; in a thirtieth of isfinite's time
        if tensor.numel() and not torch.stack(torch.aminmax(tensor)).isfinite().all():
            raise BundleError(
                f"{source}: tensor {name!r} holds numbers that are infinite or none (NaN): nothing "
                "can be computed with these weights. Get the file again."
            )


def fill(
    module: nn.Module,
    tensors: Mapping[str, torch.Tensor],
    source: Path,
    device: torch.device,
    dtype: torch.dtype,
) -> None:
    """Give a module that was built on the ``meta`` device its weights, ready for inference.

    The parameters of linear layers become `dtype`. All others become float32 always, and so do
    buffers: norms, embeddings and statistics cost no time, and half precision spoils them.

    Raises
    ------
    BundleError
        As `check`.
    """
    check({name: tuple(t.shape) for name, t in module.state_dict().items()}, tensors, source)
    linear = {
        f"{layer}.{name}"
        for layer, part in module.named_modules()
        if isinstance(part, nn.Linear)
        for name, _ in part.named_parameters()
    }
    placed = {
        name: tensor.to(device, dtype if name in linear else torch.float32)
        for name, tensor in tensors.items()
    }
    module.load_state_dict(placed, assign=True)
    module.eval().requires_grad_(requires_grad=False)


def _check_names(wanted: Collection[str], found: Collection[str], source: Path) -> None:
    missing = sorted(set(wanted) - set(found))
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


def _check_shapes(
    shapes: Mapping[str, tuple[int, ...]], tensors: Mapping[str, torch.Tensor], source: Path
) -> None:
    for name, tensor in tensors.items():
        if tensor.shape != shapes[name]:
            raise BundleError(
                f"{source}: tensor {name!r} has shape {tuple(tensor.shape)}, and the settings "
                f"ask for {shapes[name]}. Settings and weights are "
                "of different models."
            )
        if not tensor.is_floating_point() or tensor.itemsize == 1:
            raise BundleError(
                f"{source}: tensor {name!r} holds {tensor.dtype}, no floating-point numbers. "
                "Get the file again, in a format that is not quantised."
            )


def _some(names: Iterable[str]) -> str:
    first, *rest = names
    return f"{first!r} and {len(rest)} more" if rest else repr(first)

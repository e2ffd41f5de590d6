"""Tensors from a file into a module, with every name and shape checked."""

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Final

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import nn

from virnucpro.encoders.shapes import require_shapes
from virnucpro.errors import BundleError

__all__ = ["check", "check_layout", "fill", "read_safetensors"]


_WIDER: Final = {
    torch.float16: ("fp16", "--precision bf16 or fp32"),
    torch.bfloat16: ("bf16", "--precision fp32"),
    torch.float32: ("fp32", "weights of smaller numbers"),
}
"""Name of a type, and what to take where a number is too large for it."""


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
    found = {name: tuple(tensor.shape) for name, tensor in tensors.items()}
    require_shapes(shapes, found, source)
    for name, tensor in tensors.items():
        if not tensor.is_floating_point() or tensor.itemsize == 1:
            raise BundleError(
                f"{source}: tensor {name!r} holds {tensor.dtype}, no floating-point numbers. "
                "Get the file again, in a format that is not quantised."
            )


def check(
    shapes: Mapping[str, tuple[int, ...]],
    tensors: Mapping[str, torch.Tensor],
    source: Path,
    rounded: Collection[str],
    dtype: torch.dtype,
) -> None:
    """Make sure of the same, and that every number is finite: one that is not spoils all vectors.

    Parameters
    ----------
    rounded
        Names of the tensors that are to become `dtype`.

    Raises
    ------
    BundleError
        As `check_layout`, and when a number is infinite or none, or would be as `dtype`.
    """
    check_layout(shapes, tensors, source)
    for name, tensor in tensors.items():
        if not tensor.numel():
            continue
        # both ends are infinite or none if any number is; in a thirtieth of isfinite's time
        ends = torch.stack(torch.aminmax(tensor))
        if not ends.isfinite().all():
            raise BundleError(
                f"{source}: tensor {name!r} holds numbers that are infinite or none (NaN): nothing "
                "can be computed with these weights. Get the file again."
            )
        if name in rounded and not ends.to(dtype).isfinite().all():
            precision, wider = _WIDER[dtype]
            raise BundleError(
                f"{source}: tensor {name!r} holds numbers up to {ends.abs().max():.4g}, and "
                f"{precision} none above {torch.finfo(dtype).max:.4g}: nothing can be computed "
                f"with these weights at it. Take {wider}."
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
    linear = {
        f"{layer}.{name}"
        for layer, part in module.named_modules()
        if isinstance(part, nn.Linear)
        for name, _ in part.named_parameters()
    }
    shapes = {name: tuple(tensor.shape) for name, tensor in module.state_dict().items()}
    check(shapes, tensors, source, linear, dtype)
    placed = {
        name: tensor.to(device, dtype if name in linear else torch.float32)
        for name, tensor in tensors.items()
    }
    module.load_state_dict(placed, assign=True)
    module.eval().requires_grad_(requires_grad=False)

"""Check names, shapes and values of tensors."""

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Final

import torch

from virnucpro.encoders.weights.shapes import require_shapes
from virnucpro.errors import BundleError

_ALTERNATIVE: Final = {
    torch.float16: ("fp16", "Use --precision bf16 or fp32"),
    torch.bfloat16: ("bf16", "Use --precision fp32"),
    torch.float32: ("fp32", "Use other weights"),
}
"""Name of each dtype, and advice if a number is too large for it."""


def check_layout(
    shapes: Mapping[str, tuple[int, ...]], tensors: Mapping[str, torch.Tensor], source: Path
) -> None:
    """Raise BundleError if tensors do not have a model's names and shapes, or have a wrong type.

    `shapes` are the expected shapes by tensor name. `source` is the file of the tensors.

    Raises
    ------
    BundleError
        If a tensor is missing, unknown, of another shape, or not of a floating-point type.
    """
    require_shapes(shapes, {name: tuple(tensor.shape) for name, tensor in tensors.items()}, source)
    for name, tensor in tensors.items():
        if not tensor.is_floating_point() or tensor.itemsize == 1:
            raise BundleError(
                f"{source}: tensor {name!r} has the type {tensor.dtype}, but only "
                "unquantised floating-point types are supported. Get the unquantised file."
            )


def check_tensors(
    shapes: Mapping[str, tuple[int, ...]],
    tensors: Mapping[str, torch.Tensor],
    source: Path,
    rounded: Collection[str],
    dtype: torch.dtype,
) -> None:
    """Check names, shapes, types and values of tensors.

    A single infinite value would make all vectors invalid.

    Parameters
    ----------
    shapes
        Expected shapes by tensor name.
    tensors, source
        Tensors by name, and the file that they come from.
    rounded
        Parts of the names of the tensors that will be converted to `dtype`.

    Raises
    ------
    BundleError
        If `check_layout` refuses a tensor, or a number is infinite or NaN before or after rounding.
    """
    check_layout(shapes, tensors, source)
    for name, tensor in tensors.items():
        if not tensor.numel():
            continue
        # minimum or maximum is not finite if any number is not; 30 times as fast as isfinite
        ends = torch.stack(torch.aminmax(tensor))
        if not ends.isfinite().all():
            raise BundleError(
                f"{source}: tensor {name!r} contains infinite numbers or NaN. Get the file again."
            )
        to_round = any(part in name for part in rounded)
        if to_round and not ends.to(dtype).isfinite().all():
            precision, advice = _ALTERNATIVE[dtype]
            raise BundleError(
                f"{source}: tensor {name!r} contains numbers up to {ends.abs().max():.4g}; the "
                f"maximum of {precision} is {torch.finfo(dtype).max:.4g}. {advice}."
            )

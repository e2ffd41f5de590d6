"""Read tensors, check their names, shapes and values, and load them into a module."""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import torch
from torch import nn
from torch.overrides import TorchFunctionMode

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
        Names of the tensors that will be converted to `dtype`.

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
        if name in rounded and not ends.to(dtype).isfinite().all():
            precision, advice = _ALTERNATIVE[dtype]
            raise BundleError(
                f"{source}: tensor {name!r} contains numbers up to {ends.abs().max():.4g}; the "
                f"maximum of {precision} is {torch.finfo(dtype).max:.4g}. {advice}."
            )


@contextmanager
def init_empty_weights() -> Iterator[None]:
    """Create modules without initial values during the block, on the ``meta`` device; see `fill`.

    Random initial values on the ``meta`` device would import torch's compiler and sympy. That takes
    as long as the import of torch itself.
    """
    with torch.device("meta"), _SkipInit():
        yield


class _SkipInit(TorchFunctionMode):
    """Context manager that disables the functions of ``torch.nn.init``."""

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Sequence[type],
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:  # noqa: ANN401 - the result of any function
        given = kwargs or {}
        if getattr(func, "__module__", None) == "torch.nn.init":
            return args[0] if args else given["tensor"]
        return func(*args, **given)


def place(tensor: torch.Tensor, device: torch.device, dtype: torch.dtype) -> torch.Tensor:
    """Copy a tensor to `device`, convert it to `dtype` on that device, and return the result.

    The call ``tensor.to(device, dtype)`` converts on the CPU instead. That is slower than on a GPU
    and needs another copy in host memory.
    """
    return tensor.to(device).to(dtype)


def fill(
    module: nn.Module,
    tensors: Mapping[str, torch.Tensor],
    source: Path,
    device: torch.device,
    dtype: torch.dtype,
) -> None:
    """Load tensors into a module built by `init_empty_weights`, ready for inference.

    Parameters of linear layers are converted to `dtype`. All other parameters and buffers are
    converted to float32. Norms, embeddings and statistics are inaccurate at half precision, and
    need little time at any precision.

    Raises
    ------
    BundleError
        If `check_tensors` refuses a tensor.
    """
    linear = {
        f"{layer}.{name}"
        for layer, part in module.named_modules()
        if isinstance(part, nn.Linear)
        for name, _ in part.named_parameters()
    }
    shapes = {name: tuple(tensor.shape) for name, tensor in module.state_dict().items()}
    check_tensors(shapes, tensors, source, linear, dtype)
    placed = {
        name: place(tensor, device, dtype if name in linear else torch.float32)
        for name, tensor in tensors.items()
    }
    module.load_state_dict(placed, assign=True)
    module.eval().requires_grad_(requires_grad=False)

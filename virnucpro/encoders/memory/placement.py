"""Devices and floating-point types of encoders."""

from typing import Final

import torch

from virnucpro.encoders.base import Precision
from virnucpro.errors import DeviceError, UsageError
from virnucpro.machine import available_memory, usable_memory

__all__ = ["device_bytes", "device_name", "dtype_of", "free_bytes", "open_device"]

_DTYPES: Final = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}


def device_name(kind: str) -> str:
    """Return the hardware model of ``cuda``, for which learned budgets are valid; or ``cpu``."""
    return torch.cuda.get_device_name() if kind == "cuda" else kind


def dtype_of(precision: Precision) -> torch.dtype:
    """Return torch's type of a precision.

    Raises
    ------
    UsageError
        If the precision is not fp32, fp16 or bf16.
    """
    if precision not in _DTYPES:
        raise UsageError(f"unknown precision {precision!r}; choose one of {', '.join(_DTYPES)}")
    return _DTYPES[precision]


def open_device(name: str) -> torch.device:
    """Return a device by torch's name after an allocation on it.

    Raises
    ------
    DeviceError
        If there is no such device, or torch was built without support for it.
    """
    # cuBLAS may add up parts of an fp16 product in fp16, which overflows at 65,504
    torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction = False
    try:
        device = torch.device(name)
        torch.empty(1, device=device)
    except (RuntimeError, AssertionError) as error:
        reason = str(error).partition("\n")[0]
        raise DeviceError(
            f"device {name!r} cannot be used ({reason}). Use 'cpu', or a device of this machine."
        ) from error
    return device


def device_bytes(device: torch.device) -> int | None:
    """Return the bytes of a device's memory; None for a device without memory."""
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)[1]
    return usable_memory() if device.type == "cpu" else None


def free_bytes(device: torch.device) -> int | None:
    """Return the free bytes of a device's memory; None for a device without memory."""
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)[0]
    return available_memory() if device.type == "cpu" else None

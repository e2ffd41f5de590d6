"""Whether the weights of an encoder fit into one device at all: told before they are read."""

import math
import os
from collections.abc import Iterable

import torch

from virnucpro.encoders.base import Precision
from virnucpro.encoders.placement import dtype_of
from virnucpro.errors import DeviceError

__all__ = ["device_bytes", "require_room", "weight_bytes"]


def weight_bytes(shapes: Iterable[tuple[int, ...]], precision: Precision) -> int:
    """Add up what tensors of such shapes take.

    Raises
    ------
    UsageError
        When there is no such precision.
    """
    return sum(math.prod(shape) for shape in shapes) * dtype_of(precision).itemsize


def device_bytes(device: torch.device) -> int | None:
    """Say how much memory a device has, free or not; None for one that holds no numbers."""
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)[1]
    if device.type == "cpu":
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return None


def require_room(name: str, weights: int, precision: Precision, device: str, room: int) -> None:
    """Refuse an encoder whose weights alone are more than a device's whole memory.

    Parameters
    ----------
    name
        The encoder's.
    weights, room
        Bytes of the weights at `precision`, and of the memory.

    Raises
    ------
    DeviceError
        When they do not fit.
    """
    if weights <= room:
        return
    smaller = "--precision fp16 halves that; or take" if precision == "fp32" else "Take"
    raise DeviceError(
        f"{name} needs {weights / 1e9:.1f} GB at {precision} for its weights alone, and {device} "
        f"has {room / 1e9:.1f} GB. One encoder over several devices, or partly outside of one, is "
        f"not possible yet. {smaller} a device with more memory, or a smaller model."
    )

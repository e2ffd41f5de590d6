"""One device for this very process, by torch's names."""

from typing import Literal

import torch

from virnucpro.encoders.placement import open_device
from virnucpro.errors import UsageError

__all__ = ["device_of", "kind_of"]


def device_of(name: str) -> str:
    """Give torch's name of a device: ``auto`` is the first GPU where there is one, else the CPU."""
    if name != "auto":
        return name
    return "cuda" if torch.cuda.is_available() else "cpu"


def kind_of(device: str) -> Literal["cpu", "cuda"]:
    """Say of which kind a device is.

    Raises
    ------
    DeviceError
        When there is no such device.
    UsageError
        When no run could use it.
    """
    kind = open_device(device).type
    match kind:
        case "cpu" | "cuda":
            return kind
    raise UsageError(f"device {device!r} is of a kind that no run uses: give cpu or cuda.")

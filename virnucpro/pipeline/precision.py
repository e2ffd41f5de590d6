"""Which device, and which kind of number there, where nobody said so."""

from typing import Literal, TypeAlias

import torch

from virnucpro.encoders.base import Precision
from virnucpro.encoders.placement import open_device

__all__ = ["PrecisionChoice", "device_of", "precision_of"]

PrecisionChoice: TypeAlias = Precision | Literal["auto"]


def device_of(name: str) -> str:
    """Give torch's name of a device: ``auto`` is the first GPU where there is one, else the CPU."""
    if name != "auto":
        return name
    return "cuda" if torch.cuda.is_available() else "cpu"


def precision_of(choice: PrecisionChoice, device: str) -> Precision:
    """Say what ``auto`` means on a device; any other choice as it is.

    Raises
    ------
    DeviceError
        When there is no such device.
    """
    kind = open_device(device).type
    if choice != "auto":
        return choice
    return "fp16" if kind == "cuda" else "fp32"

"""The device that this very process computes on: its name for torch, and its kind."""

import re
from typing import Final

import torch

from virnucpro.encoders.memory.placement import open_device
from virnucpro.errors import UsageError
from virnucpro.runtime.devices import Kind

__all__ = ["device_of", "kind_of"]

_USED: Final = re.compile(r"cpu|cuda(:[0-9]{1,4})?")


def device_of(name: str) -> str:
    """Give torch's name of a device: ``auto`` is the first GPU where there is one, else the CPU.

    Raises
    ------
    UsageError
        When no run could use it.
    """
    if name == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    _require_used(name)
    return name


def kind_of(device: str) -> Kind:
    """Say of which kind a device is.

    Raises
    ------
    DeviceError
        When there is no such device.
    UsageError
        When no run could use it.
    """
    _require_used(device)
    return "cpu" if open_device(device).type == "cpu" else "cuda"


def _require_used(name: str) -> None:
    """Ask before torch does, which tells a page about what else it could have been built for."""
    if not _USED.fullmatch(name):
        raise UsageError(f"device {name!r} is none that a run uses: give cpu, cuda, cuda:1 or auto")

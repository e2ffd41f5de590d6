"""Whether an encoder fits into a device's memory, told before anything is read or written."""

from pathlib import Path
from typing import Final

import torch

from virnucpro.encoders.base import Precision
from virnucpro.encoders.placement import open_device
from virnucpro.errors import DeviceError
from virnucpro.pipeline.ranks import usable_memory

__all__ = ["free_memory", "refuse_what_does_not_fit"]

_BYTES: Final = {"fp32": 4, "fp16": 2, "bf16": 2}

_BESIDES: Final = 1 << 29
"""Bytes beside the weights: a batch, and what torch keeps for itself."""

_MEMINFO: Final = Path("/proc/meminfo")


def free_memory(device: str) -> int:
    """Say how many bytes a device has left for this process.

    Raises
    ------
    DeviceError
        When there is no such device.
    """
    place = open_device(device)
    if place.type == "cuda":
        return torch.cuda.mem_get_info(place)[0]
    return min(usable_memory(), _available(_MEMINFO.read_text()))


def refuse_what_does_not_fit(
    name: str, n_parameters: int, precision: Precision, device: str, free: int
) -> None:
    """Refuse an encoder whose weights, and a batch beside them, are more than `free` bytes.

    Raises
    ------
    DeviceError
        With what is wanted, what there is, and what to do.
    """
    wanted = n_parameters * _BYTES[precision] + _BESIDES
    if wanted > free:
        less = "" if precision != "fp32" else " at half the precision (--precision bf16),"
        raise DeviceError(
            f"{name} needs {wanted / 1e9:.1f} GB of memory at {precision}, and {device} has "
            f"{free / 1e9:.1f} GB left. Take a smaller model,{less} or a machine with more memory: "
            "one model over several devices is not possible yet."
        )


def _available(meminfo: str) -> int:
    """Read how many bytes of the machine's memory can be had without swapping."""
    fields = dict(line.split(":", 1) for line in meminfo.splitlines())
    return int(fields["MemAvailable"].split()[0]) * 1024

"""Check that encoders fit into a device's memory before weights are read.

This module does not import torch.
"""

import math
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from virnucpro.console import counted
from virnucpro.errors import DeviceError

if TYPE_CHECKING:
    from virnucpro.encoders.base import Precision

_BYTES: Final = {"fp32": 4, "fp16": 2, "bf16": 2}

_PACKING: Final = 1.4
"""Peak memory while a CPU's weights are packed for its kernels, as a multiple of their size.
Measured: 1.36 at fp32 and 1.34 at bf16 with ESM-2 150M, 1.33 at fp32 with 650M. fp16 has no such
kernels.
"""

PROCESS_BYTES: Final = 1 << 29
"""Memory of a CPU worker in bytes, without the weights: torch, the index's pages, a batch. Measured
with torch and a small model: 0.35 GB; with the bundle ``mini``, which needs no torch: 0.06 GB.
"""


def bytes_of(shapes: Iterable[tuple[int, ...]], precision: "Precision") -> int:
    """Return the total bytes of tensors with these shapes at a precision."""
    return sum(math.prod(shape) for shape in shapes) * _BYTES[precision]


def weight_bytes(shapes: Iterable[tuple[int, ...]], precision: "Precision", device: str) -> int:
    """Return the peak memory in bytes of encoders' weights on a device.

    On a CPU at fp32 or bf16 it is 1.4 times their size, because they are packed for faster kernels.

    Parameters
    ----------
    shapes
        All tensors of all encoders that are in memory together.
    precision
        Type of the arithmetic; the type in the files does not matter.
    device
        ``cpu``, or ``cuda`` with an optional number.
    """
    packing = _PACKING if device == "cpu" and precision != "fp16" else 1
    return int(packing * bytes_of(shapes, precision))


def require_memory(
    name: str,
    shapes: Iterable[tuple[int, ...]],
    precision: "Precision",
    device: str,
    room: int | None,
    ranks: int = 1,
) -> None:
    """Raise DeviceError if the weights of encoders do not fit into a device's memory.

    Parameters
    ----------
    name
        Name of the encoder, or of all encoders of a job.
    shapes, precision, device
        As for `weight_bytes`.
    room
        Bytes of the device's memory; None if unlimited.
    ranks
        Number of processes that share the memory, each with all encoders.

    Raises
    ------
    DeviceError
        If the weights do not fit.
    """
    needed = ranks * weight_bytes(shapes, precision, device)
    if room is not None and needed > room:
        raise DeviceError(
            f"not enough memory: {needed / 1e9:.1f} GB are needed for {name} at {precision} in "
            f"{counted(ranks, 'worker')}, but {device} has {room / 1e9:.1f} GB. Start fewer "
            "workers, or use half precision, a device with more memory or a smaller model."
        )

"""Check that encoders fit into a device's memory before weights are read.

This module does not import torch.
"""

import math
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

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

GPU_PROCESS_BYTES: Final = 3 << 29
"""GPU memory of a worker in bytes, without the weights. Measured on an H100 at fp16: 0.55 GB for
CUDA's context, and 0.5 GB (DNABERT-S), 0.4 GB (ESM-2 650M) or 0.7 GB (3B) for the 16,384 tokens of
a first batch; DNABERT-S keeps up to 0.25 GB of bias tables (twice that at fp32). A worker with more
free memory doubles its batches while they fit.
"""


def bytes_of(shapes: Iterable[tuple[int, ...]], precision: "Precision") -> int:
    """Return the total bytes of tensors with these shapes at a precision."""
    return sum(math.prod(shape) for shape in shapes) * _BYTES[precision]


def memory_wanted(shapes: Iterable[tuple[int, ...]], precision: "Precision", device: str) -> int:
    """Return the bytes of memory that a process with encoders needs: weights plus a constant.

    The constant is `PROCESS_BYTES` on a CPU and `GPU_PROCESS_BYTES` on a GPU. On a CPU at fp32 or
    bf16, the weights count 1.4 times, because they are packed for faster kernels.

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
    return _besides(device) + int(packing * bytes_of(shapes, precision))


def require_memory(
    name: str,
    shapes: Iterable[tuple[int, ...]],
    precision: "Precision",
    device: str,
    room: int | None,
    ranks: int = 1,
    *,
    free: bool = False,
) -> None:
    """Raise DeviceError if encoders do not fit into a device's memory.

    Free memory is compared with `memory_wanted`. Total memory is compared with `memory_wanted`
    without its constant: the constant is an estimate, which must not reject encoders that fit.

    Parameters
    ----------
    name
        Name of the encoder, or of all encoders of a job.
    shapes, precision, device
        As for `memory_wanted`.
    room
        Bytes of the device's memory; None if unlimited.
    ranks
        Number of processes that share the memory, each with all encoders.
    free
        True if `room` is the free memory, False if the total memory.

    Raises
    ------
    DeviceError
        If the encoders do not fit.
    """
    shapes = list(shapes)
    wanted = memory_wanted(shapes, precision, device)
    tolerance = 0 if free else _besides(device)
    if room is None or ranks * (wanted - tolerance) <= room:
        return
    each = f" in each of {ranks} workers" if ranks > 1 else ""
    text = (
        f"not enough memory: {wanted / 1e9:.1f} GB are needed for {name} at {precision} (weights "
        f"plus one batch){each}, but {device} has {room / 1e9:.1f} GB{' free' if free else ''}"
    )
    if fit := room // wanted or int(wanted - tolerance <= room):
        raise DeviceError(
            f"{text}, enough for {fit} of them. Start fewer workers, for example with "
            f"--devices cpu:{fit}."
        )
    half: Precision = "fp16" if device.startswith("cuda") else "bf16"
    fits = precision == "fp32" and memory_wanted(shapes, half, device) - tolerance <= room
    advice = f"--precision {half}, " if fits else ""
    raise DeviceError(
        f"{text}. An encoder cannot be split over devices. Use {advice}a device with more memory, "
        "or a smaller model."
    )


def _besides(device: str) -> int:
    return GPU_PROCESS_BYTES if device.startswith("cuda") else PROCESS_BYTES

"""How much memory encoders take, and whether a device has it: told before weights are read.

Light to import: ranks are counted before anything else is done.
"""

import math
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from virnucpro.errors import DeviceError

if TYPE_CHECKING:
    from virnucpro.encoders.base import Precision

__all__ = ["GPU_PROCESS_BYTES", "PROCESS_BYTES", "bytes_of", "memory_wanted", "require_room"]

_BYTES: Final = {"fp32": 4, "fp16": 2, "bf16": 2}

_LAYING_OUT: Final = 1.4
"""Most memory while a CPU's weights are laid out for its kernels, by their size. Measured: 1.36 at
fp32 and 1.34 at bf16 with ESM-2 150M, 1.33 at fp32 with 650M. There are no kernels for fp16.
"""

PROCESS_BYTES: Final = 1 << 29
"""Bytes beside the weights in a rank on a CPU: torch, the index's pages, a batch. Measured with
the bundle ``mini``: 0.35 GB.
"""

GPU_PROCESS_BYTES: Final = 3 << 29
"""Bytes of a GPU's memory beside the weights. Reckoned from shapes, measured nowhere: half a GB for
CUDA's context and kernels, 0.25 GB for DNABERT-S's tables of biases (twice that at fp32), and for
the 16,384 tokens of a first batch 0.5 GB (DNABERT-S at fp16) to 0.8 GB (ESM-2 3B). A rank that
finds more room takes it: its batches are doubled as long as they fit.
"""


def bytes_of(shapes: Iterable[tuple[int, ...]], precision: "Precision") -> int:
    """Add up what tensors of such shapes take."""
    return sum(math.prod(shape) for shape in shapes) * _BYTES[precision]


def memory_wanted(shapes: Iterable[tuple[int, ...]], precision: "Precision", device: str) -> int:
    """Say how many bytes encoders take with what is beside them in a process: the one rule.

    The weights are counted; what is beside them is a figure for all encoders, `PROCESS_BYTES` on a
    CPU and `GPU_PROCESS_BYTES` on a GPU.

    Parameters
    ----------
    shapes
        Of all tensors of all encoders that are in memory together.
    precision
        What they compute with; what their files hold makes no difference.
    device
        ``cpu``, or ``cuda`` with whatever tells it from others.
    """
    laying_out = _LAYING_OUT if device == "cpu" and precision != "fp16" else 1
    return _beside(device) + int(laying_out * bytes_of(shapes, precision))


def require_room(
    name: str,
    shapes: Iterable[tuple[int, ...]],
    precision: "Precision",
    device: str,
    room: int | None,
    ranks: int = 1,
    *,
    free: bool = False,
) -> None:
    """Refuse encoders that are more than a device holds.

    Of a device's whole memory the weights alone count: what a process takes beside them is no more
    than an estimate, and nothing that works may be refused. Of what is left free, all counts.

    Parameters
    ----------
    name
        Of the encoder, or of all of a job.
    shapes, precision, device
        As `memory_wanted` takes them.
    room
        Bytes of the device's memory; None where it has no limit.
    ranks
        Processes that share it, each with all of the encoders.
    free
        Whether `room` is what is left of it now.

    Raises
    ------
    DeviceError
        With what is wanted, what there is, and what to do.
    """
    counted = list(shapes)
    wanted = memory_wanted(counted, precision, device)
    let_pass = 0 if free else _beside(device)
    least = wanted - let_pass
    if room is None or ranks * least <= room:
        return
    needs = f"{wanted / 1e9:.1f} GB at {precision} go to the weights of {name} and a batch"
    has = f"{device} has {room / 1e9:.1f} GB{' free' if free else ''}"
    if fit := room // wanted or int(least <= room):
        raise DeviceError(
            f"{needs}, in each of {ranks} ranks, and {has}, which is enough for {fit}. "
            f"Give that many by --devices, such as cpu:{fit}."
        )
    half: Precision = "fp16" if device.startswith("cuda") else "bf16"
    fits = precision == "fp32" and memory_wanted(counted, half, device) - let_pass <= room
    smaller = f"--precision {half} halves the weights; or take" if fits else "Take"
    raise DeviceError(
        f"{needs}, and {has}. One encoder over several devices, or partly outside of one, is not "
        f"possible yet. {smaller} a device with more memory, or a smaller model."
    )


def _beside(device: str) -> int:
    return GPU_PROCESS_BYTES if device.startswith("cuda") else PROCESS_BYTES

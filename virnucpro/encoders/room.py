"""Whether the weights of encoders fit into one device at all: told before they are read."""

import math
from collections.abc import Iterable
from typing import Final

from virnucpro.encoders.base import Precision
from virnucpro.errors import DeviceError

__all__ = ["require_room", "weight_bytes"]

_BYTES: Final = {"fp32": 4, "fp16": 2, "bf16": 2}


def weight_bytes(shapes: Iterable[tuple[int, ...]], precision: Precision) -> int:
    """Add up what tensors of such shapes take."""
    return sum(math.prod(shape) for shape in shapes) * _BYTES[precision]


def require_room(
    name: str,
    shapes: Iterable[tuple[int, ...]],
    precision: Precision,
    device: str,
    room: int | None,
    besides: int = 0,
) -> None:
    """Refuse weights that are more than a device holds.

    Parameters
    ----------
    name
        Of the encoder, or of all of a job.
    shapes
        Of its tensors.
    device
        ``cpu``, or ``cuda`` with whatever tells it from others.
    room
        Bytes of the device's memory; None where it has no limit.
    besides
        Bytes that it must hold beside the weights.

    Raises
    ------
    DeviceError
        With what is wanted, what there is, and what to do.
    """
    counted = list(shapes)
    wanted = weight_bytes(counted, precision) + besides
    if room is None or wanted <= room:
        return
    half: Precision = "fp16" if device.startswith("cuda") else "bf16"
    fits = precision == "fp32" and weight_bytes(counted, half) + besides <= room
    smaller = f"--precision {half} halves that; or take" if fits else "Take"
    what = "for its weights and a batch" if besides else "for its weights alone"
    raise DeviceError(
        f"{name} needs {wanted / 1e9:.1f} GB at {precision} {what}, and {device} has "
        f"{room / 1e9:.1f} GB. One encoder over several devices, or partly outside of one, is not "
        f"possible yet. {smaller} a device with more memory, or a smaller model."
    )

"""Choose device, precision and CPU threads for a measurement in this process."""

import re
from collections.abc import Collection, Iterable
from typing import Final, Literal

import torch

from virnucpro.encoders.base import Precision
from virnucpro.encoders.device import open_device
from virnucpro.encoders.memory import bytes_of
from virnucpro.errors import UsageError
from virnucpro.machine import cpu_flags
from virnucpro.pipeline.jobs.job import PrecisionChoice
from virnucpro.pipeline.scheduling.preflight import default_precision

__all__ = ["choose_compute"]

_SUPPORTED: Final = re.compile(r"cpu|cuda(:[0-9]{1,4})?")


def choose_compute(
    device: str,
    precision: PrecisionChoice,
    threads: int,
    shapes: Iterable[tuple[int, ...]],
    verified: Collection[str] = (),
) -> tuple[str, Precision]:
    """Resolve ``auto`` for device and precision, and set the CPU threads of this process.

    Parameters
    ----------
    device
        ``cpu``, ``cuda``, ``cuda:N`` or ``auto`` (the first GPU, or the CPU if there is no GPU).
    precision
        ``auto`` is resolved as for a new run; see `default_precision`.
    threads
        CPU threads of torch.
    shapes
        Shapes of all weights of the encoders.
    verified
        Precisions that the bundle's card lists as verified.

    Returns
    -------
    device : str
        Name of the torch device.
    precision : Precision
        Precision of the encoders.

    Raises
    ------
    DeviceError
        If the machine has no such device.
    UsageError
        If `device` has none of the listed values.
    """
    torch.set_num_threads(threads)
    name = device
    if device == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    if not _SUPPORTED.fullmatch(name):  # torch's own message lists all its backends
        raise UsageError(f"device {name!r} is not supported: give cpu, cuda, cuda:N or auto")
    kind: Literal["cpu", "cuda"] = "cpu" if open_device(name).type == "cpu" else "cuda"
    if precision == "auto":
        precision = default_precision(kind, cpu_flags(), bytes_of(shapes, "fp32"), verified)
    return name, precision

"""Choose device, precision and CPU threads for a measurement in this process."""

import re
from collections.abc import Collection, Iterable
from typing import Final, Literal

import torch

from virnucpro.compute.preflight import default_precision
from virnucpro.encoders.base import Precision
from virnucpro.encoders.device import open_device
from virnucpro.encoders.memory import bytes_of
from virnucpro.errors import UsageError
from virnucpro.lab.validation.options import ComputeOptions
from virnucpro.machine import cpu_flags

_SUPPORTED: Final = re.compile(r"cpu|cuda(:[0-9]{1,4})?")


def choose_compute(
    options: ComputeOptions, shapes: Iterable[tuple[int, ...]], verified: Collection[str] = ()
) -> tuple[str, Precision]:
    """Resolve ``auto`` for device and precision, and set the CPU threads of this process.

    Parameters
    ----------
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
        If the device has another name than ``cpu``, ``cuda``, ``cuda:N`` or ``auto``.
    """
    torch.set_num_threads(options.threads)
    name, precision = options.device, options.precision
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    if not _SUPPORTED.fullmatch(name):  # torch's own message lists all its backends
        raise UsageError(f"device {name!r} is not supported: give cpu, cuda, cuda:N or auto")
    kind: Literal["cpu", "cuda"] = "cpu" if open_device(name).type == "cpu" else "cuda"
    if precision == "auto":
        precision = default_precision(kind, cpu_flags(), bytes_of(shapes, "fp32"), verified)
    return name, precision

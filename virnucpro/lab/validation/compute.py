"""Choose encoders, device, precision and CPU threads for a measurement in this process."""

import os
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Final, Literal

import torch

from virnucpro.bundles.bundle import open_bundle
from virnucpro.compute.preflight import default_precision
from virnucpro.encoders.base import EncoderSpec, Precision
from virnucpro.encoders.device import open_device
from virnucpro.encoders.memory import bytes_of
from virnucpro.errors import UsageError
from virnucpro.lab.validation.options import BenchOptions, ComputeOptions
from virnucpro.run.embed_job import find_encoder

_SUPPORTED: Final = re.compile(r"cpu|cuda(:[0-9]{1,4})?")


def choose_model(options: BenchOptions) -> tuple[tuple[EncoderSpec, ...], Path | None]:
    """Return the encoders of a measurement, and the classifier if a bundle has one.

    Raises
    ------
    BundleError, UsageError
        If the bundle or encoder is unknown, missing or damaged.
    """
    if options.encoder is not None:
        return (find_encoder(options.encoder).spec,), None
    bundle = open_bundle(os.fspath(options.bundle))
    return bundle.encoders, bundle.head


def choose_compute(
    options: ComputeOptions, shapes: Iterable[tuple[int, ...]]
) -> tuple[str, Precision]:
    """Resolve ``auto`` for device and precision, and set the CPU threads of this process.

    `shapes` are those of all weights of the encoders.

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
        precision = default_precision(kind, bytes_of(shapes, "fp32"))
    return name, precision

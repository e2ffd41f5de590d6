"""Options of the measurements on this machine.

This module imports quickly, because the command line needs it.
"""

import os
from dataclasses import dataclass

from virnucpro.run.options import PrecisionChoice


@dataclass(frozen=True)
class ComputeOptions:
    """Device, precision and CPU threads of a measurement; see `choose_compute`.

    Attributes
    ----------
    device
        ``cpu``, ``cuda``, ``cuda:N`` or ``auto`` (the first GPU, or the CPU if there is no GPU).
    precision
        ``auto`` is resolved as for a new run; see `default_precision`.
    threads
        CPU threads of torch. A small encoder is slower with more than one thread.
    """

    device: str = "auto"
    precision: PrecisionChoice = "auto"
    threads: int = 1


@dataclass(frozen=True, kw_only=True)
class BenchOptions(ComputeOptions):
    """What is measured, or compared with fp32 on the CPU.

    Attributes
    ----------
    bundle
        Name or folder of the bundle, as for `open_bundle`; ignored if `encoder` is set.
    encoder
        Name or path of the encoder, as for `find_encoder`.
    lengths
        Sequence lengths of a measurement, as for `synthetic_items`.
    seconds
        Duration of the measurement of each encoder, without loading. At least one batch is
        measured.
    n_sequences
        Number of sequences of a comparison.
    """

    bundle: str | os.PathLike[str] = "mini"
    encoder: str | os.PathLike[str] | None = None
    lengths: str = "six-frame"
    seconds: float = 20.0
    n_sequences: int = 64

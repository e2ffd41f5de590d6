"""Options of the measurements on this machine.

This module imports quickly, because the command line needs it.
"""

import os
from dataclasses import dataclass

from virnucpro.errors import UsageError
from virnucpro.run.options import PrecisionChoice

_MOST_SEQUENCES = 100_000
"""Maximum number of compared sequences.

The vectors of both devices are kept in memory, and the CPU encodes the sequences one by one.
"""


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


@dataclass(frozen=True)
class BenchOptions(ComputeOptions):
    """Device, sequence lengths and duration of a measurement.

    Attributes
    ----------
    lengths
        Sequence lengths, as for `synthetic_items`.
    seconds
        Duration of the measurement of each encoder, without loading. At least one batch is
        measured.
    """

    lengths: str = "six-frame"
    seconds: float = 20.0


@dataclass(frozen=True, kw_only=True)
class ParityOptions(ComputeOptions):
    """What is compared with fp32 on the CPU.

    Attributes
    ----------
    bundle
        Name or folder of the bundle, as for `open_bundle`; ignored if `encoder` is set.
    encoder
        Name or path of the encoder, as for `find_encoder`.
    fasta
        Sequence file, processed as in a run. With `encoder`, sequences are not cut into windows.
        None for synthetic items of 1 to 1,022 residues.
    n_sequences
        Number of items, at most 100,000. Items from `fasta` are chosen evenly over all lengths.

    Raises
    ------
    UsageError
        If the number of items is out of range.
    """

    bundle: str | os.PathLike[str] = "mini"
    encoder: str | os.PathLike[str] | None = None
    fasta: str | os.PathLike[str] | None = None
    n_sequences: int = 64

    def __post_init__(self) -> None:
        if not 1 <= self.n_sequences <= _MOST_SEQUENCES:
            raise UsageError(
                f"cannot compare {self.n_sequences:,} sequences: give 1 to {_MOST_SEQUENCES:,}"
            )

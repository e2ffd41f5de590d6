"""The ranks' processes, started before anything is read. Light to import: this comes first."""

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from virnucpro.encoders.machine_memory import usable_memory
from virnucpro.pipeline.execution import Execution
from virnucpro.pipeline.gpu_worker import import_work
from virnucpro.pipeline.ranks import devices_for, ranks_that_fit, threads_of_rank
from virnucpro.runtime.standby import Standby

__all__ = ["likely_units", "ranks_ahead"]

_NOT_KNOWN: Final = 0
"""Encoders are not known yet; ranks that turn out to be too many are ended."""

_UNIT_BYTES: Final = 2_000
"""Bytes of a plain file from which a unit is made, at the least: 32 rows, six to a window of 500
bases."""

_PACKED: Final = 5
"""Times as long as it is that a compressed file may be; what ends in none of these is plain."""

_SUFFIXES: Final = frozenset({".gz", ".bz2", ".xz", ".zst"})


def ranks_ahead(inputs: Sequence[str], execution: Execution) -> Standby:
    """Start a process for each rank that a new run is likely to have.

    Each needs a second or two to import torch, in which this process reads the input. Nobody is
    started where it is plain that it would be in vain: the run folder is there already (what is
    missing of a run may be little or nothing), or an input is not. Nor are more than have work, a
    processor and memory: ranks without one of these are started when they are known to be wanted.

    Parameters
    ----------
    inputs
        As `predict_job` takes them.

    Raises
    ------
    UsageError, DeviceError
        When the devices make no sense or are not there.
    """
    # os.path: what cannot be looked at is not there, and whoever reads it says why.
    there = [one for one in inputs if one == "-" or os.path.exists(one)]  # noqa: PTH110
    if os.path.lexists(execution.outdir) or len(there) < len(inputs):
        return Standby([], import_work)
    devices = devices_for(execution, _NOT_KNOWN)
    threads = threads_of_rank(execution, len(devices))
    most = ranks_that_fit(len(os.sched_getaffinity(0)), _NOT_KNOWN, usable_memory())
    return Standby(devices[: min(most, likely_units(inputs))], import_work, threads)


def likely_units(inputs: Sequence[str]) -> int:
    """Guess from the sizes of files how many units their sequences make, at the most.

    Standard input, and what is no file, may be of any size.
    """
    n_bytes = 0
    for one in map(Path, inputs):
        if not one.is_file():
            return sys.maxsize
        n_bytes += one.stat().st_size * (_PACKED if one.suffix in _SUFFIXES else 1)
    return 1 + n_bytes // _UNIT_BYTES

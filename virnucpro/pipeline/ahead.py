"""The ranks' processes, started before anything is read. Light to import: this comes first."""

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from virnucpro.pipeline.execution import Execution
from virnucpro.pipeline.ranks import devices_for, threads_of_rank
from virnucpro.runtime.standby import Standby

__all__ = ["ranks_ahead"]

_MODULES: Final = ("virnucpro.pipeline.share_work",)
"""What a rank's work is in; torch comes with it."""

_NO_WEIGHTS: Final = 0
"""Encoders are not known yet; ranks that turn out to be too many are ended."""


def ranks_ahead(inputs: Sequence[str], execution: Execution) -> Standby:
    """Start a process for each rank that a new run is likely to have.

    Each needs a second or two to import torch, in which this process reads the input. Nobody is
    started where it is plain that it would be in vain: the run folder is there already (what is
    missing of a run may be little or nothing), or an input is not.

    Parameters
    ----------
    inputs
        As `predict_job` takes them.

    Raises
    ------
    UsageError, DeviceError
        When the devices make no sense or are not there.
    """
    in_vain = execution.outdir.exists() or not all(
        one == "-" or Path(one).exists() for one in inputs
    )
    devices = [] if in_vain else devices_for(execution, _NO_WEIGHTS)
    return Standby(devices, _MODULES, threads_of_rank(execution, max(1, len(devices))))

"""How many ranks a job gets where nobody said so. Light to import."""

import os
from typing import TYPE_CHECKING

from virnucpro.encoders.machine_memory import usable_memory
from virnucpro.pipeline.execution import Execution
from virnucpro.runtime.devices import Device, parse_devices

if TYPE_CHECKING:
    from virnucpro.pipeline.job import Job

__all__ = ["devices_for", "devices_of", "ranks_that_fit", "threads_of_rank"]

_RANK_BYTES = 1 << 29
"""Memory of a rank beside its weights: torch, the index's pages, a batch. Measured: 0.35 GB."""


def devices_of(job: "Job", execution: Execution) -> list[Device]:
    """Read ``--devices``, one device a rank, as `devices_for` does for the encoders of a job."""
    weights = sum(encoder.file("weights").stat().st_size for encoder in job.encoders)
    return devices_for(execution, weights)


def devices_for(execution: Execution, weights: int) -> list[Device]:
    """Read ``--devices``, one device a rank.

    ``auto`` on a machine without GPUs gives a rank to each thread: a rank with one thread never
    waits for another's, and two of them do as much as one rank with two threads on a quiet
    machine, and far more on a busy one.

    Parameters
    ----------
    weights
        Bytes of the encoders' weights, which every rank holds.

    Raises
    ------
    UsageError, DeviceError
        When the devices make no sense or are not there.
    """
    devices = parse_devices(execution.devices, os.environ)
    if execution.devices.strip() != "auto" or devices != [Device("cpu")]:
        return devices
    return devices * ranks_that_fit(_usable_threads(execution), weights, usable_memory())


def threads_of_rank(execution: Execution, ranks: int) -> int:
    """Tell how many CPU threads each of so many ranks may use."""
    return max(1, _usable_threads(execution) // ranks)


def _usable_threads(execution: Execution) -> int:
    """Tell how many CPU threads all ranks may use together."""
    return execution.threads or len(os.sched_getaffinity(0))


def ranks_that_fit(threads: int, weights: int, memory: int) -> int:
    """Choose a number of CPU ranks: one a thread, as far as half of the memory goes, at least one.

    Parameters
    ----------
    threads
        CPU threads for all ranks together.
    weights
        Bytes of the encoders' weights, which every rank holds.
    memory
        Bytes of the machine.
    """
    return max(1, min(threads, memory // 2 // (weights + _RANK_BYTES)))

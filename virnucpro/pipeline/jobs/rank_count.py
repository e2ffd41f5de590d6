"""How many ranks a job gets where nobody said so. Light to import."""

import os
from typing import TYPE_CHECKING

from virnucpro.encoders.memory.memory_needed import PROCESS_BYTES, memory_wanted
from virnucpro.machine import usable_cpus, usable_memory
from virnucpro.pipeline.execution import Execution
from virnucpro.runtime.devices import Device, parse_devices

if TYPE_CHECKING:
    from virnucpro.pipeline.jobs.job import Job

__all__ = ["devices_for", "devices_of", "ranks_that_fit", "threads_of_rank"]


def devices_of(job: "Job", execution: Execution) -> list[Device]:
    """Read ``--devices``, one device a rank, as `devices_for` does for the encoders of a job."""
    from virnucpro.encoders.registry import shapes_of  # noqa: PLC0415 - imports NumPy

    return devices_for(
        execution, memory_wanted(shapes_of(*job.encoders), job.settled_precision, "cpu")
    )


def devices_for(execution: Execution, rank_bytes: int) -> list[Device]:
    """Read ``--devices``, one device a rank.

    ``auto`` on a machine without GPUs gives a rank to each thread: a rank with one thread never
    waits for another's, and two of them do as much as one rank with two threads on a quiet
    machine, and far more on a busy one.

    Parameters
    ----------
    rank_bytes
        What a rank on a CPU takes; 0 where the encoders are not known yet.

    Raises
    ------
    UsageError, DeviceError
        When the devices make no sense or are not there.
    """
    devices = parse_devices(execution.devices, os.environ)
    if execution.devices.strip() != "auto" or devices != [Device("cpu")]:
        return devices
    return devices * ranks_that_fit(_usable_threads(execution), rank_bytes, usable_memory())


def threads_of_rank(execution: Execution, ranks: int) -> int:
    """Tell how many CPU threads each of so many ranks may use."""
    return max(1, _usable_threads(execution) // ranks)


def _usable_threads(execution: Execution) -> int:
    """Tell how many CPU threads all ranks may use together."""
    return execution.threads or usable_cpus()


def ranks_that_fit(threads: int, rank_bytes: int, memory: int) -> int:
    """Choose a number of CPU ranks: one a thread, as far as half of the memory goes, at least one.

    Parameters
    ----------
    threads
        CPU threads for all ranks together.
    rank_bytes
        What a rank takes, see `memory_wanted`; what it takes without encoders is the least.
    memory
        Bytes of the machine.
    """
    return max(1, min(threads, memory // 2 // max(rank_bytes, PROCESS_BYTES)))

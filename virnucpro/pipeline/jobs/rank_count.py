"""Devices and default number of ranks of a job. Light to import."""

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
    """Return the devices of a job, one per rank; see `devices_for`."""
    from virnucpro.encoders.registry import shapes_of  # noqa: PLC0415 - imports NumPy

    return devices_for(
        execution, memory_wanted(shapes_of(*job.encoders), job.settled_precision, "cpu")
    )


def devices_for(execution: Execution, rank_bytes: int) -> list[Device]:
    """Return the devices of ``--devices``, one per rank.

    ``auto`` on a machine without GPUs is one CPU rank per thread. Two ranks with one thread are as
    fast as one rank with two threads on an idle machine, and much faster on a busy one, because
    threads wait for one another.

    Parameters
    ----------
    rank_bytes
        Memory of a CPU rank; 0 if the encoders are not known yet.

    Raises
    ------
    UsageError, DeviceError
        If the devices are invalid or missing.
    """
    devices = parse_devices(execution.devices, os.environ)
    if execution.devices.strip() != "auto" or devices != [Device("cpu")]:
        return devices
    return devices * ranks_that_fit(_usable_threads(execution), rank_bytes, usable_memory())


def threads_of_rank(execution: Execution, ranks: int) -> int:
    """Return the number of CPU threads of each of `ranks` ranks."""
    return max(1, _usable_threads(execution) // ranks)


def _usable_threads(execution: Execution) -> int:
    """Return the number of CPU threads of all ranks together."""
    return execution.threads or usable_cpus()


def ranks_that_fit(threads: int, rank_bytes: int, memory: int) -> int:
    """Return the number of CPU ranks: one per thread, limited by half of the memory, at least 1.

    Parameters
    ----------
    threads
        CPU threads for all ranks together.
    rank_bytes
        Memory of a rank, see `memory_wanted`; at least that of a rank without encoders.
    memory
        Memory of the machine in bytes.
    """
    return max(1, min(threads, memory // 2 // max(rank_bytes, PROCESS_BYTES)))

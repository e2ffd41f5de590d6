"""How many ranks a job gets where nobody said so."""

import os
from collections.abc import Iterator
from pathlib import Path

from virnucpro.pipeline.execution import Execution
from virnucpro.pipeline.job import Job
from virnucpro.runtime.devices import Device, parse_devices

__all__ = ["devices_of", "ranks_that_fit", "usable_memory", "usable_threads"]

_RANK_BYTES = 1 << 29
"""Memory of a rank beside its weights: torch, the index's pages, a batch. Measured: 0.35 GB."""


_CGROUPS = Path("/proc/self/cgroup")


def devices_of(job: Job, execution: Execution) -> list[Device]:
    """Read ``--devices``, one device a rank.

    ``auto`` on a machine without GPUs gives a rank to each thread: a rank with one thread never
    waits for another's, and two of them do as much as one rank with two threads on a quiet
    machine, and far more on a busy one.

    Raises
    ------
    UsageError, DeviceError
        When the devices make no sense or are not there.
    """
    devices = parse_devices(execution.devices, os.environ)
    if execution.devices.strip() != "auto" or devices != [Device("cpu")]:
        return devices
    weights = sum(encoder.file("weights").stat().st_size for encoder in job.encoders)
    return devices * ranks_that_fit(usable_threads(execution), weights, usable_memory())


def usable_threads(execution: Execution) -> int:
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


def usable_memory() -> int:
    """Tell how many bytes this process may use: the machine's, or those of its control group."""
    machine = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return min([machine, *_limits(Path("/sys/fs/cgroup"), _CGROUPS.read_text())])


def _limits(root: Path, cgroups: str) -> Iterator[int]:
    """Read the memory limits of a process's control groups and of all above them.

    Parameters
    ----------
    root
        Where the control groups are mounted.
    cgroups
        Content of /proc/PID/cgroup: lines of ``number:controllers:path``.
    """
    for line in cgroups.splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers == "":
            base, name = root, "memory.max"
        elif controllers == "memory":
            base, name = root / "memory", "memory.limit_in_bytes"
        else:
            continue
        group = base / path.lstrip("/")
        for folder in (group, *group.parents):
            limit = folder / name
            if folder.is_relative_to(base) and limit.is_file():
                text = limit.read_text().strip()
                if text.isdigit():  # "max" is no limit
                    yield int(text)

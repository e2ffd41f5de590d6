"""CPUs and memory available to this process, within the limits of its job and control groups."""

import os
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Final

_CGROUP_ROOT: Final = Path("/sys/fs/cgroup")
_CGROUPS: Final = Path("/proc/self/cgroup")

_MEMINFO: Final = Path("/proc/meminfo")
_GRANTS: Final = (
    "NSLOTS",
    *("NCPUS", "PBS_NUM_PPN"),
    "LSB_DJOB_NUMPROC",
    *("SLURM_CPUS_PER_TASK", "SLURM_CPUS_ON_NODE"),
)
"""Variables of SGE, PBS, LSF and SLURM: CPUs that a job may use, even if it is not bound to them.

Some count the CPUs of all nodes of a job. OMP_NUM_THREADS is a wish of the user, not a grant.
"""


def usable_cpus() -> int:
    """Return the number of usable CPUs, at least 1: the minimum of `bound_cpus` and all grants."""
    return min([bound_cpus(), *_grants().values()])


def bound_cpus() -> int:
    """Return the minimum of CPU affinity and CPU quota, at least 1; threads can use no more."""
    cpus = [len(os.sched_getaffinity(0)), *_cpu_quotas(_CGROUP_ROOT, _CGROUPS.read_text())]
    return max(1, int(min(cpus)))


def scheduler_limit(workers: int, threads: int | None) -> str:
    """Return which grant of a scheduler limits the CPUs; "" if none does, or the user chose more.

    `workers` and `threads` are the numbers of a run; None for all usable CPUs.
    """
    cpus, bound = usable_cpus(), bound_cpus()
    if cpus == bound or threads is not None or workers > cpus:
        return ""
    name = next(name for name, number in _grants().items() if number == cpus)
    of = f"{cpus:,} of {bound:,} CPUs"
    return f"using {of}: the scheduler grants {name}={cpus} (--threads overrides it)"


def _grants() -> dict[str, int]:
    """Return the valid values of `_GRANTS`."""
    values = {name: os.environ.get(name, "").strip() for name in _GRANTS}
    return {name: int(text) for name, text in values.items() if text.isdecimal() and int(text)}


def usable_memory() -> int:
    """Return the usable memory in bytes: the minimum of the machine's and the cgroup's memory."""
    machine = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return min([machine, *_memory_limits(_CGROUP_ROOT, _CGROUPS.read_text())])


def available_memory() -> int:
    """Return the memory in bytes that this process can allocate now without swapping."""
    fields = dict(line.split(":", 1) for line in _MEMINFO.read_text().splitlines())
    return min(usable_memory(), int(fields["MemAvailable"].split()[0]) * 1024)


@cache  # quotas stay; an API program asks for them in each call
def _cpu_quotas(root: Path, cgroups: str) -> tuple[float, ...]:
    """Return the CPU quotas (number of CPUs) of a process's control groups and their parents."""
    files = (
        numbers
        for group in _groups(root, cgroups, "cpu")
        for numbers in (
            _numbers(group / "cpu.max"),
            _numbers(group / "cpu.cfs_quota_us") + _numbers(group / "cpu.cfs_period_us"),
        )
    )
    return tuple(numbers[0] / numbers[1] for numbers in files if len(numbers) == 2)


def _memory_limits(root: Path, cgroups: str) -> Iterator[int]:
    """Yield the memory limits in bytes of a process's control groups and their parents."""
    for group in _groups(root, cgroups, "memory"):
        yield from _numbers(group / "memory.max") + _numbers(group / "memory.limit_in_bytes")


def _groups(root: Path, cgroups: str, controller: str) -> Iterator[Path]:
    """Yield the folder of a process's control group, then its parent folders, for one controller.

    Parameters
    ----------
    root
        Mount point of the control groups.
    cgroups
        Content of /proc/PID/cgroup: lines of ``number:controllers:path``. In cgroups version 2,
        the list of controllers is empty.
    """
    for line in cgroups.splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers and controller not in controllers.split(","):
            continue
        base = root / controllers if controllers else root
        group = base / path.lstrip("/")
        yield from (folder for folder in (group, *group.parents) if folder.is_relative_to(base))


def _numbers(file: Path) -> list[int]:
    """Return the numbers in a file, without "max" and -1 (no limit); empty for a missing file."""
    texts = file.read_text().split() if file.is_file() else []
    return [int(text) for text in texts if text.isdigit()]

"""How much of the machine's memory this process may use, control groups counted."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final

__all__ = ["available_memory", "usable_memory"]

_CGROUPS: Final = Path("/proc/self/cgroup")
_MEMINFO: Final = Path("/proc/meminfo")


def usable_memory() -> int:
    """Tell how many bytes this process may use: the machine's, or those of its control group."""
    machine = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return min([machine, *_limits(Path("/sys/fs/cgroup"), _CGROUPS.read_text())])


def available_memory() -> int:
    """Tell how many bytes this process can have now without swapping."""
    return min(usable_memory(), _available(_MEMINFO.read_text()))


def _available(meminfo: str) -> int:
    fields = dict(line.split(":", 1) for line in meminfo.splitlines())
    return int(fields["MemAvailable"].split()[0]) * 1024


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

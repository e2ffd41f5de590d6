"""Names of processes, in what they leave on disk: whether an owner has ended can be asked.

A name is ``PID-START-PLACE``. START is the start time of the process in clock ticks since boot, so
that another process with the same id is not taken for the owner. PLACE is that of the process ids:
machine, boot and container. Nothing is known about a process of another place.
"""

import os
import re
import zlib
from pathlib import Path
from typing import Final

_NAME: Final = re.compile(r"([0-9]+)-([0-9]+)-([0-9a-f]{8})")
_START_FIELD: Final = 18
"""Position of the start time in /proc/PID/stat after the state of the process; see proc(5)."""


def process_name() -> str:
    """Return the name of this process; "" without /proc."""
    try:
        return f"{os.getpid()}-{_start(os.getpid())}-{_place()}"
    except OSError:
        return ""


def has_ended(name: str) -> bool:
    """Return whether the process `name` is known to have ended.

    It must be one of this user: those of others may be hidden in /proc.
    """
    match = _NAME.fullmatch(name)
    try:
        return match is not None and match[3] == _place() and _start(match[1]) != match[2]
    except OSError:  # unknown
        return False


def _start(pid: int | str) -> str:
    """Return the start time of a process; "" if it has ended, noticed by its parent or not."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    except FileNotFoundError:
        return ""
    state, *fields = stat.rpartition(")")[2].split()
    return "" if state == "Z" else fields[_START_FIELD]


def _place() -> str:
    """Return eight hexadecimal digits for the machine, its boot and the namespace of processes."""
    boot = Path("/proc/sys/kernel/random/boot_id").read_bytes()
    namespace = bytes(Path("/proc/self/ns/pid").readlink())
    return f"{zlib.crc32(boot + namespace):08x}"

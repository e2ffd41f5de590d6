"""Names of temporary folders that state their owner, so that those of killed programs are removed.

A name is ``virnucpro-PURPOSE-PID-START-PLACE-RANDOM``. START is the start time of the process in
clock ticks since boot, so that another process with the same id is not taken for the owner. PLACE
is that of the process ids: machine, boot and container. A folder of another place is never
removed, because TMPDIR may be shared.
"""

import os
import re
import shutil
import tempfile
import zlib
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Final

_OWNED: Final = re.compile(r"virnucpro-[a-z]+-(\d+)-(\d+)-([0-9a-f]{8})-.+")
_START_FIELD: Final = 19
"""Position of the start time in /proc/PID/stat after the name of the program; see proc(5)."""


def owned_prefix(purpose: str) -> str:
    """Return the beginning of the name of a temporary folder of this process, for `tempfile`.

    The first call of a process removes the folders in TMPDIR whose owners were killed, if they have
    the same user and place.

    Parameters
    ----------
    purpose
        One word of lower-case letters.
    """
    try:
        start, place = _start(os.getpid()), _place()
    except OSError:  # without /proc, the owner has no name
        return f"virnucpro-{purpose}-"
    _remove_leftovers(os.getpid())
    return f"virnucpro-{purpose}-{os.getpid()}-{start}-{place}-"


@cache
def _remove_leftovers(pid: int) -> None:  # noqa: ARG001 - once for each process, also for a fork
    with suppress(OSError), os.scandir(tempfile.gettempdir()) as entries:
        for entry in entries:
            match = _OWNED.fullmatch(entry.name)
            if match and match[3] == _place() and not _lives(int(match[1]), match[2]):
                with suppress(OSError):
                    own = entry.stat(follow_symlinks=False).st_uid == os.geteuid()
                    if own and entry.is_dir(follow_symlinks=False):
                        shutil.rmtree(entry.path, ignore_errors=True)


def _lives(pid: int, start: str) -> bool:
    try:
        return _start(pid) == start
    except FileNotFoundError:
        return False
    except OSError:  # unknown
        return True


def _start(pid: int) -> str:
    """Return the start time of a process."""
    stat = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    return stat.rpartition(")")[2].split()[_START_FIELD]


def _place() -> str:
    """Return eight hexadecimal digits for the machine, its boot and the namespace of processes."""
    boot = Path("/proc/sys/kernel/random/boot_id").read_bytes()
    namespace = bytes(Path("/proc/self/ns/pid").readlink())
    return f"{zlib.crc32(boot + namespace):08x}"

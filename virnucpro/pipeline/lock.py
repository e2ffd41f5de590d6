"""One process at a time in a run folder."""

import fcntl
import os
import struct
from collections.abc import Iterator
from contextlib import contextmanager

from virnucpro.errors import RunLockedError
from virnucpro.run_dir import RunDirectory

__all__ = ["is_locked", "run_lock"]

_FLOCK = "hhqqi4x"
"""struct flock of Linux on 64 bits: type, whence, start, length, pid."""


@contextmanager
def run_lock(run: RunDirectory) -> Iterator[None]:
    """Hold the run's lock; the kernel lets it go when the process ends, however it ends.

    An open-file-description lock: it also holds between the hosts of a network file system, and
    children started meanwhile do not share it.

    Raises
    ------
    RunLockedError
        At once, when another process holds it, or was removing the folder just now.
    OSError
        When the folder cannot be written to.
    """
    handle = os.open(run.lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        try:
            fcntl.fcntl(handle, fcntl.F_OFD_SETLK, _request(fcntl.F_WRLCK))
        except BlockingIOError:
            holder = os.pread(handle, 64, 0).decode(errors="replace").strip() or "unknown"
            raise RunLockedError(
                f"{run.root}: another process (pid {holder}) is at work in this folder. "
                f"Wait for it (virnucpro status {run.root}), or choose another folder."
            ) from None
        if os.fstat(handle).st_nlink == 0:  # its maker gave up and removed it between open and lock
            raise RunLockedError(
                f"{run.root}: another process was removing this folder. Repeat the command."
            )
        try:
            os.ftruncate(handle, 0)
            os.pwrite(handle, f"{os.getpid()}\n".encode(), 0)
        except OSError as error:
            error.add_note(f"{run.lock} could not be written; nothing in the folder was touched")
            raise
        yield
    finally:
        os.close(handle)


def is_locked(run: RunDirectory) -> bool:
    """Tell whether a process is at work in the folder now, without taking the lock."""
    try:
        handle = os.open(run.lock, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        answer = fcntl.fcntl(handle, fcntl.F_OFD_GETLK, _request(fcntl.F_WRLCK))
    finally:
        os.close(handle)
    return bool(struct.unpack(_FLOCK, answer)[0] != fcntl.F_UNLCK)


def _request(kind: int) -> bytes:
    return struct.pack(_FLOCK, kind, os.SEEK_SET, 0, 0, 0)

"""One process at a time in a folder."""

import fcntl
import os
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from virnucpro.errors import RunLockedError

__all__ = ["folder_lock", "is_held"]

_FLOCK = "hhqqi4x"
"""struct flock of Linux on 64 bits: type, whence, start, length, pid."""


@contextmanager
def folder_lock(lock: Path, advice: str) -> Iterator[None]:
    """Hold the lock of a folder; the kernel lets it go when the process ends, however it ends.

    An open-file-description lock: it also holds between the hosts of a network file system, and
    children started meanwhile do not share it.

    Parameters
    ----------
    lock
        A file in the folder; it is made, and stays.
    advice
        What to do when another process holds it.

    Raises
    ------
    RunLockedError
        At once, when another process holds it, or was removing the folder just now.
    OSError
        When the folder cannot be written to.
    """
    handle = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        try:
            fcntl.fcntl(handle, fcntl.F_OFD_SETLK, _request(fcntl.F_WRLCK))
        except BlockingIOError:
            holder = os.pread(handle, 64, 0).decode(errors="replace").strip() or "unknown"
            raise RunLockedError(
                f"{lock.parent}: another process (pid {holder}) is at work in this folder. {advice}"
            ) from None
        if os.fstat(handle).st_nlink == 0:  # its maker gave up and removed it between open and lock
            raise RunLockedError(
                f"{lock.parent}: another process was removing this folder. Repeat the command."
            )
        try:
            os.ftruncate(handle, 0)
            os.pwrite(handle, f"{os.getpid()}\n".encode(), 0)
        except OSError as error:
            error.add_note(f"{lock} could not be written; nothing in the folder was touched")
            raise
        yield
    finally:
        os.close(handle)


def is_held(lock: Path) -> bool:
    """Tell whether a process is at work in the folder now, without taking the lock."""
    try:
        handle = os.open(lock, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        answer = fcntl.fcntl(handle, fcntl.F_OFD_GETLK, _request(fcntl.F_WRLCK))
    finally:
        os.close(handle)
    return bool(struct.unpack(_FLOCK, answer)[0] != fcntl.F_UNLCK)


def _request(kind: int) -> bytes:
    return struct.pack(_FLOCK, kind, os.SEEK_SET, 0, 0, 0)

"""Lock of a folder for one process."""

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
    """Hold the lock of a folder; the kernel releases it when the process ends, even if killed.

    An open-file-description lock: it also works between hosts of a network file system, and child
    processes do not inherit it.

    Parameters
    ----------
    lock
        A file in the folder; it is created and never removed.
    advice
        Next step for the user if another process holds the lock.

    Raises
    ------
    RunLockedError
        At once, if another process holds the lock or is removing the folder.
    OSError
        If the folder is not writable.
    """
    handle = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        try:
            fcntl.fcntl(handle, fcntl.F_OFD_SETLK, _request(fcntl.F_WRLCK))
        except BlockingIOError:
            holder = os.pread(handle, 64, 0).decode(errors="replace").strip() or "unknown"
            raise RunLockedError(
                f"{lock.parent}: another process (pid {holder}) uses this folder. {advice}"
            ) from None
        if os.fstat(handle).st_nlink == 0:  # removed by another process between open and lock
            raise RunLockedError(
                f"{lock.parent}: another process was removing this folder. Rerun the command."
            )
        try:
            os.ftruncate(handle, 0)
            os.pwrite(handle, f"{os.getpid()}\n".encode(), 0)
        except OSError as error:
            error.add_note(f"{lock} could not be written; the folder is unchanged")
            raise
        yield
    finally:
        os.close(handle)


def is_held(lock: Path) -> bool:
    """Return whether a process holds the lock now, without taking it."""
    try:
        # O_NONBLOCK: opening a named pipe in its place would wait for a writer.
        handle = os.open(lock, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except FileNotFoundError:
        return False
    try:
        answer = fcntl.fcntl(handle, fcntl.F_OFD_GETLK, _request(fcntl.F_WRLCK))
    finally:
        os.close(handle)
    return bool(struct.unpack(_FLOCK, answer)[0] != fcntl.F_UNLCK)


def _request(kind: int) -> bytes:
    return struct.pack(_FLOCK, kind, os.SEEK_SET, 0, 0, 0)

"""Lock of a folder: one process uses it alone, or several as tasks that add files of their own."""

import errno
import fcntl
import os
import struct
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from enum import Enum
from pathlib import Path

from virnucpro.durable import require_regular
from virnucpro.errors import NoLocksError, RunError, RunLockedError

_WITHOUT_LOCKS = {errno.ENOSYS, errno.ENOLCK, errno.EOPNOTSUPP, errno.EINVAL}
"""Errors of file systems without locks, such as Lustre without the mount option flock."""

_LOOK_S, _LOOKS = 0.1, 20
"""Seconds between two looks of a task at a lock that excludes it, and the number of looks."""

_FLOCK = "hhqqi4x"
"""Format of the C struct ``flock`` on 64-bit Linux: type, whence, start, length, pid."""


class Use(Enum):
    """What a process does in a folder, as a lock: kind, first byte and number of bytes.

    `TABLES` and any number of processes with `TASK` use a folder at once. No other use is shared.
    """

    ALONE = (fcntl.F_WRLCK, 0, 0)
    """Write and remove any file: the whole lock file is locked."""
    TABLES = (fcntl.F_WRLCK, 0, 1)
    """Write the files of the folder that every process reads."""
    TASK = (fcntl.F_RDLCK, 1, 1)
    """Add files that no other process writes. Without file locks, this use needs no lock."""

    @property
    def request(self) -> bytes:
        """Return the C struct of the request to lock."""
        kind, first, n_bytes = self.value
        return struct.pack(_FLOCK, kind, os.SEEK_SET, first, n_bytes, 0)


_BY_TASKS = struct.pack(_FLOCK, fcntl.F_WRLCK, os.SEEK_SET, 1, 1, 0)
"""Request that every lock for `Use.TASK` refuses."""


@contextmanager
def folder_lock(
    lock: Path, advice: str, *, held: bool = True, use: Use = Use.ALONE
) -> Iterator[None]:
    """Lock a folder during the block. The kernel releases the lock when the process ends.

    The lock file is removed at the end unless tasks use the folder: a finished folder has none.

    The lock is an open-file-description lock: it also works between hosts on a network file system.
    Child processes do not inherit the lock.

    Parameters
    ----------
    lock
        Lock file in the folder; it is created if missing.
    advice
        Text for the error message: what the user can do if another process holds the lock.
    held
        False: no lock, for file systems without locks.

    Raises
    ------
    RunLockedError
        If another process holds a lock that excludes this one; only tasks wait, for 2 s.
    NoLocksError
        If the file system has no locks.
    RunError
        If the lock file is a symbolic link, whose target would be overwritten, or no regular file.
    OSError
        If the folder is not writable.
    """
    handle = -1
    if held:
        with suppress(*([NoLocksError] if use is Use.TASK else [])):
            handle = _locked(lock, advice, use)
    if handle < 0:
        yield
        return
    try:
        try:
            if use is not Use.TASK:
                os.ftruncate(handle, 0)
                os.pwrite(handle, f"{os.getpid()}\n".encode(), 0)
        except OSError as error:
            error.add_note(f"{lock} could not be written; the folder is unchanged")
            raise
        yield
    finally:
        with suppress(OSError):  # the folder may be gone, or tasks use it
            if use is not Use.TASK:
                fcntl.fcntl(handle, fcntl.F_OFD_SETLK, Use.ALONE.request)
                if _is_current(handle, lock):
                    lock.unlink()
        os.close(handle)


def _locked(lock: Path, advice: str, use: Use) -> int:
    """Return the descriptor of the lock file, locked; another process may remove it before."""
    patience = _LOOKS if use is Use.TASK else 0  # a process that ends locks the whole file
    while True:
        handle = _open(lock)
        try:
            fcntl.fcntl(handle, fcntl.F_OFD_SETLK, use.request)
            if _is_current(handle, lock):
                return handle
        except BlockingIOError:
            if patience > 0:
                patience -= 1
                time.sleep(_LOOK_S)
                os.close(handle)
                continue
            holder = os.pread(handle, 64, 0).decode(errors="replace").strip() or "unknown"
            os.close(handle)
            raise RunLockedError(
                f"{lock.parent}: another process (pid {holder}) uses this folder. {advice}"
            ) from None
        except OSError as error:
            os.close(handle)
            if error.errno not in _WITHOUT_LOCKS:
                raise
            raise NoLocksError(
                f"{lock}: its file system has no file locks ({error.strerror}), so two "
                "processes could write here at once. Choose a folder on another file system."
            ) from None
        os.close(handle)
        if not lock.parent.exists():
            raise RunLockedError(
                f"{lock.parent}: another process was removing this folder. Rerun the command."
            )


def _is_current(handle: int, lock: Path) -> bool:
    """Return whether the open lock file is still in its place."""
    with suppress(FileNotFoundError):
        return os.path.samestat(os.fstat(handle), lock.lstat())
    return False


def is_held(lock: Path, *, by_tasks: bool = False) -> bool:
    """Return whether a process holds the lock file `lock` now; the lock is not acquired.

    With `by_tasks`, only processes that use the folder as tasks or alone count. The result is False
    on a file system without locks.
    """
    try:
        # O_NONBLOCK: if the path is a named pipe, `open` would wait for a writer.
        handle = os.open(lock, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except FileNotFoundError:
        return False
    try:
        request = _BY_TASKS if by_tasks else Use.ALONE.request
        answer = fcntl.fcntl(handle, fcntl.F_OFD_GETLK, request)
    except OSError as error:
        if error.errno in _WITHOUT_LOCKS:
            return False
        raise
    finally:
        os.close(handle)
    return bool(struct.unpack(_FLOCK, answer)[0] != fcntl.F_UNLCK)


def _open(lock: Path) -> int:
    try:
        require_regular([lock])
        return os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o644)
    except OSError as error:
        if error.errno != errno.ELOOP:
            raise
        raise RunError(
            f"{lock} is a symbolic link. Its target would be overwritten, so it is not opened. "
            "Remove the link, then rerun the command."
        ) from None

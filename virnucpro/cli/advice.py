"""Next steps after an error of the operating system."""

import errno
import os
import shlex

from virnucpro.bundles.permissions import DENIED

__all__ = ["advice_for"]

_NOT_WRITABLE = "make the folder writable, or choose another one"
_NOT_A_FOLDER = "a file has the same name as a required folder: choose another output folder"
_ALTERNATIVES = {
    errno.EROFS: _NOT_WRITABLE,
    errno.EACCES: _NOT_WRITABLE,
    errno.EPERM: _NOT_WRITABLE,
    errno.ENOTDIR: _NOT_A_FOLDER,
    errno.EEXIST: _NOT_A_FOLDER,
}
_REPAIRS = {
    errno.ENOSPC: "free disk space",
    errno.EDQUOT: "your disk quota is used up: free disk space",
    errno.EFBIG: "the file exceeds the size limit: raise it (ulimit -f)",
    errno.ENOENT: "check that the folder exists and its disk is mounted",
    errno.ESTALE: "the network file system lost the file: check that it is mounted",
    errno.EIO: "the disk or its connection fails: ask the administrator of the machine",
    errno.EMFILE: "raise the limit of open files (ulimit -n)",
    errno.ENFILE: "the machine has too many open files: close some programs",
    errno.ENOMEM: "free memory, or raise its limit (ulimit -v)",
    errno.EAGAIN: "no more processes or threads are allowed: raise the limit (ulimit -u)",
}
"""Advice by error number; after this step, the same command can succeed."""


def advice_for(error: OSError | MemoryError, *, resumable: bool) -> str | None:
    """Return advice for the user about `error`; None if the system's message is sufficient.

    Parameters
    ----------
    resumable
        True if the command has an option ``--resume``.
    """
    code = errno.ENOMEM if isinstance(error, MemoryError) else error.errno
    if code in _REPAIRS:
        return f"{_REPAIRS[code]}, then rerun the command{' with --resume' if resumable else ''}"
    if code in DENIED and (unreadable := _unreadable_file(error)) is not None:
        return unreadable
    return None if code is None else _ALTERNATIVES.get(code)


def _unreadable_file(error: OSError | MemoryError) -> str | None:
    """Return advice about a file without read permission; None if `error` has another cause."""
    name = getattr(error, "filename", None)
    if not isinstance(name, str | bytes | os.PathLike):
        return None
    path = os.fsdecode(name)
    if not os.path.isfile(path) or os.access(path, os.R_OK):  # noqa: PTH113 - as Path
        return None
    return f"its owner can give you permission to read it: chmod a+r {shlex.quote(path)}"

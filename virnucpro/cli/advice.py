"""What to do when the machine, and not the input, is what fails."""

import errno
import os
from pathlib import Path

from virnucpro.bundles.permissions import DENIED, who_opens

__all__ = ["advice_for"]

_WRITABLE = "make the folder writable, or choose another one"
_IN_THE_WAY = "a file stands where a folder is needed: choose another output folder"
_ELSEWHERE = {
    errno.EROFS: _WRITABLE,
    errno.EACCES: _WRITABLE,
    errno.EPERM: _WRITABLE,
    errno.ENOTDIR: _IN_THE_WAY,
    errno.EEXIST: _IN_THE_WAY,
}
_MEND = {
    errno.ENOSPC: "free space there",
    errno.EDQUOT: "your quota there is used up: free space",
    errno.EFBIG: "files may not grow that large here: raise the limit (ulimit -f)",
    errno.ENOENT: "see whether the folder is still there and its disk mounted",
    errno.ESTALE: "the network file system lost it: see that it is mounted",
    errno.EIO: "the disk or its connection fails: ask whoever looks after it",
    errno.EMFILE: "raise the limit of open files (ulimit -n)",
    errno.ENFILE: "the machine has no open file left to give: free some",
    errno.ENOMEM: "free memory or raise its limit (ulimit -v)",
    errno.EAGAIN: "no process or thread is left to give: raise the limit (ulimit -u)",
}
"""What to do before the same command can succeed."""


def advice_for(error: OSError | MemoryError, *, resumable: bool) -> str | None:
    """Say what to do next; None where the system's own words are all there is to say.

    Parameters
    ----------
    error
        What the system refused.
    resumable
        Whether the command knows ``--resume``.
    """
    code = errno.ENOMEM if isinstance(error, MemoryError) else error.errno
    if code in _MEND:
        return f"{_MEND[code]}, then repeat the command{' with --resume' if resumable else ''}"
    if code in DENIED and (closed := _closed_file(error)) is not None:
        return closed
    return None if code is None else _ELSEWHERE.get(code)


def _closed_file(error: OSError | MemoryError) -> str | None:
    """Say whose permission is lacking where it was a file that could not be read."""
    name = getattr(error, "filename", None)
    if not isinstance(name, str | bytes | os.PathLike):
        return None
    path = Path(os.fsdecode(name))
    return who_opens(path) if path.is_file() else None

"""Permissions of a bundle's files: advice if they are unreadable, a warning if others can write."""

import errno
import os
import shlex
import stat
from collections.abc import Iterable
from pathlib import Path
from typing import Final

__all__ = ["DENIED", "advice_on_reading", "writable_by_others"]

DENIED: Final = (errno.EACCES, errno.EPERM)


def advice_on_reading(folder: Path, error: OSError, otherwise: str) -> str:
    """Return advice for the user after a failed attempt to read a bundle's file.

    Parameters
    ----------
    folder
        Folder of the bundle.
    error
        Error of the failed attempt to read the file.
    otherwise
        Text to return if the cause is not a missing permission.
    """
    if error.errno not in DENIED:
        return otherwise
    return (
        "You have no permission to read it. Its owner can grant it: chmod -R a+rX "
        f"{shlex.quote(str(folder.absolute()))} (its parent folders need a+x)."
    )


def writable_by_others(folder: Path, names: Iterable[str]) -> str | None:
    """Return a warning if users other than the owner and root can change a bundle, else None.

    Group write permission is accepted for files of this user or root, because many systems give
    each user a private group.

    Parameters
    ----------
    folder
        Folder of the bundle.
    names
        Names of the files of the bundle.
    """
    for path in (folder, *(folder / name for name in names)):
        found = path.stat()
        foreign = found.st_uid not in (0, os.geteuid())
        if found.st_mode & stat.S_IWOTH or (foreign and found.st_mode & stat.S_IWGRP):
            return (
                f"{path} is writable by other users (mode {stat.S_IMODE(found.st_mode):04o}), who "
                "can change the results. Its owner can protect the bundle: chmod -R go-w "
                f"{shlex.quote(str(folder))}"
            )
    return None

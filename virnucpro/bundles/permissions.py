"""Who may read a bundle: modes of what is installed, and what to do about what is closed."""

import errno
import os
import pwd
import shlex
import stat
from pathlib import Path
from typing import Final

__all__ = ["DENIED", "advice_on_reading", "new_file_mode", "who_opens"]

DENIED: Final = (errno.EACCES, errno.EPERM)


def new_file_mode(folder: Path) -> int:
    """Say which mode a new file has, going by a folder that this process made by its umask."""
    return stat.S_IMODE(folder.stat().st_mode) & 0o666


def advice_on_reading(path: Path, error: OSError, otherwise: str) -> str:
    """Say what to do about a bundle's file that the system did not let us read.

    Parameters
    ----------
    path
        The file, in the bundle's folder.
    otherwise
        What to do about anything but a lack of permission.
    """
    if error.errno not in DENIED:
        return otherwise
    return who_opens(path, whole=path.parent) or (
        "Its mode would let you read it: an access list or a network mount does not. Ask whoever "
        "looks after the machine."
    )


def who_opens(path: Path, whole: Path | None = None) -> str | None:
    """Say what to do where a file is closed to this process.

    Parameters
    ----------
    whole
        A folder that is opened with all that is in it, where it or something in it is closed.

    Returns
    -------
    str or None
        Whose the first closed part of the path is, and the command by which they open it; None
        where nothing on the way is closed, or nothing is there.
    """
    for part in (*reversed(path.absolute().parents), path.absolute()):
        try:
            found = part.stat()
        except OSError:
            return None
        needed = os.X_OK if stat.S_ISDIR(found.st_mode) else os.R_OK
        if not os.access(part, needed, effective_ids=True):
            inside = whole is not None and part.is_relative_to(whole.absolute())
            return _opened_by(part, found, whole if inside else None)
    return None


def _opened_by(part: Path, found: os.stat_result, whole: Path | None) -> str:
    mine = found.st_uid == os.geteuid()
    who = "u" if mine else "a"
    right = "x" if stat.S_ISDIR(found.st_mode) else "r"
    command = (
        f"chmod {who}+{right} {shlex.quote(str(part))}"
        if whole is None
        else f"chmod -R {who}+rX {shlex.quote(str(whole.absolute()))}"
    )
    closed = f"has mode {stat.S_IMODE(found.st_mode):04o}, which is closed to you"
    if mine:
        return f"{part} is yours and {closed}: {command}"
    return (
        f"{part} belongs to {_name_of(found.st_uid)} and {closed}. Ask them, or whoever looks "
        f"after the machine, for: {command}"
    )


def _name_of(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"user {uid}"

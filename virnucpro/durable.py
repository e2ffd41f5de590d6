"""Files that are whole or not there: write beside, fsync, rename, fsync the folder."""

import os
import re
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

__all__ = ["finished_name", "sync_folder", "temporary_beside", "write_file"]

_TEMPORARY = re.compile(r"(.+)\.\d+-[0-9a-f]{8}\.tmp")


def temporary_beside(path: Path) -> Path:
    """Name an unfinished twin of `path`: in the same folder, and no other process's on any host."""
    return path.with_name(f"{path.name}.{os.getpid()}-{secrets.token_hex(4)}.tmp")


def finished_name(path: Path) -> str | None:
    """Tell what an unfinished file was to be called; None for a file that is none of ours.

    An unfinished file is never read, and may be deleted once its writer is gone.
    """
    match = _TEMPORARY.fullmatch(path.name)
    return match and match[1]


def sync_folder(folder: Path) -> None:
    """Make the folder's entries survive a power cut."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


@contextmanager
def write_file(path: Path, *, lasting: bool = True) -> Iterator[IO[bytes]]:
    """Open a file to write and read back; it appears under `path` only when the block ends well.

    The former content of `path` stays until then, and stays for good when the block raises. A file
    that is not `lasting` is whole for every reader too, but a power cut may lose it.

    Raises
    ------
    OSError
        When the file cannot be written (disk full, no permission); `path` is as it was, and a
        note of the error names it.
    """
    temporary = temporary_beside(path)
    try:
        with temporary.open("w+b") as stream:
            yield stream
            stream.flush()
            if lasting:
                os.fsync(stream.fileno())
        temporary.replace(path)
        if lasting:
            sync_folder(path.parent)
    except BaseException as error:
        temporary.unlink(missing_ok=True)
        if isinstance(error, OSError):
            error.add_note(f"{path} could not be written; what stood there before is untouched")
        raise

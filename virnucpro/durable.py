"""Files that are whole or not there: write beside, fsync, rename, fsync the folder."""

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

__all__ = ["TEMPORARY_SUFFIX", "sync_folder", "temporary_beside", "write_file"]

TEMPORARY_SUFFIX = ".tmp"
"""Ends the name of every unfinished file; such a file is never read and may always be deleted."""


def temporary_beside(path: Path) -> Path:
    """Name an unfinished twin of `path`: in the same folder, and no other process's on any host."""
    return path.with_name(f"{path.name}.{os.getpid()}-{secrets.token_hex(4)}{TEMPORARY_SUFFIX}")


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

"""Atomic files: write to a temporary file, fsync, rename, fsync the folder."""

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
    """Return a temporary name for `path` in its folder, unique among processes and hosts."""
    return path.with_name(f"{path.name}.{os.getpid()}-{secrets.token_hex(4)}.tmp")


def finished_name(path: Path) -> str | None:
    """Return the final name of a temporary file of this program; None for other files.

    A temporary file is never read, and may be deleted after its writer has ended.
    """
    match = _TEMPORARY.fullmatch(path.name)
    return match and match[1]


def sync_folder(folder: Path) -> None:
    """Make the entries of a folder durable against a power failure."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


@contextmanager
def write_file(path: Path, *, lasting: bool = True) -> Iterator[IO[bytes]]:
    """Open a file to write and read back; it replaces `path` at the end of the block.

    If the block raises, `path` is unchanged. A file that is not `lasting` is atomic too, but a
    power failure may lose it.

    Raises
    ------
    OSError
        If the file cannot be written (disk full, no permission); `path` is unchanged, and a note
        of the error names it.
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
            error.add_note(f"{path} could not be written; an earlier file there is unchanged")
        raise

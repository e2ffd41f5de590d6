"""Files that a report or plot writes: errors name the file, not its temporary name."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from virnucpro.durable import write_file
from virnucpro.errors import RunError, UsageError


def require_place(path: Path) -> None:
    """Check that a file can be called `path`, before the work for its content begins.

    Raises
    ------
    UsageError
        If its folder does not exist, or `path` is a folder, a device, a pipe or a link.
    """
    if path.is_dir():
        raise UsageError(f"{path} is a folder: name a file")
    if path.is_symlink() or (path.exists() and not path.is_file()):
        raise UsageError(f"{path} is not a regular file, and would be replaced: name another file")
    if not path.parent.is_dir():
        raise UsageError(
            f"{path} cannot be written: the folder {path.parent} does not exist. Make it, or "
            "choose another one"
        )


@contextmanager
def write_output(path: Path) -> Iterator[IO[bytes]]:
    """Open a temporary file for writing; it replaces `path` at the end of the block.

    Raises
    ------
    RunError
        If the file cannot be written; its cause is the OSError. An existing file is unchanged.
    """
    try:
        with write_file(path) as stream:
            yield stream
    except OSError as error:
        reason = os.strerror(error.errno) if error.errno else str(error)
        raise RunError(f"{path} cannot be written: {reason}") from error

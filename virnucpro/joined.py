"""Files that contain others: one after another, then a directory as JSON with its SHA-256."""

import errno
import hashlib
import json
import os
import struct
from collections.abc import Iterable, Mapping
from functools import lru_cache
from io import BytesIO
from pathlib import Path
from typing import IO, Any, BinaryIO, Final

from virnucpro.durable import write_file

_END: Final = struct.Struct("<32sQ")
"""Last bytes of the file: SHA-256 and length of the JSON before them."""


def seal(stream: IO[bytes], content: Mapping[str, Any]) -> None:
    """Write `content` as the directory at the end of a file; sync the file to disk."""
    text = json.dumps(content).encode()
    stream.write(text + _END.pack(hashlib.sha256(text).digest(), len(text)))
    stream.flush()
    os.fsync(stream.fileno())


def sealed_content(path: Path) -> dict[str, Any]:
    """Return the directory at the end of a file.

    Raises
    ------
    OSError
        If the file cannot be read; with EBADMSG, if its end is missing or was altered.
    """
    with path.open("rb") as stream:
        size = stream.seek(0, os.SEEK_END)
        stream.seek(max(0, size - _END.size))
        end = stream.read()
        digest, length = _END.unpack(end) if len(end) == _END.size else (b"", 0)
        stream.seek(max(0, size - _END.size - length))
        text = stream.read(min(length, size))
    if hashlib.sha256(text).digest() != digest:
        raise OSError(errno.EBADMSG, "truncated or altered", str(path))
    content: dict[str, Any] = json.loads(text)
    return content


def join(path: Path, files: Iterable[Path]) -> None:
    """Write the content of files, or of members of joined files, into one file, atomically.

    Raises
    ------
    OSError
        If a file cannot be read or written; an existing file at `path` is unchanged.
    """
    with write_file(path) as stream:
        places = {}
        for file in files:
            with open_file(file) as source:
                places[file.name] = stream.tell(), stream.write(source.read())
        seal(stream, {"members": places})


def members(path: Path) -> list[Path]:
    """Return the paths of all members of a joined file: their names below its path.

    Raises
    ------
    OSError
        As for `sealed_content`.
    """
    return [path / name for name in _places(path)]


def open_file(path: Path) -> BinaryIO:
    """Open a file, or a member of a joined file, for reading without a buffer."""
    try:
        return path.open("rb", buffering=0)
    except NotADirectoryError:
        start, size = _places(path.parent)[path.name]
        with path.parent.open("rb") as stream:
            stream.seek(start)
            return BytesIO(stream.read(size))


def remove(path: Path) -> None:
    """Remove a file, or a member of a joined file, which is written again."""
    try:
        path.unlink()
    except NotADirectoryError:
        join(path.parent, [other for other in members(path.parent) if other != path])


def _places(path: Path) -> Mapping[str, tuple[int, int]]:
    found = path.stat()
    return _cached_places(path, found.st_ino, found.st_size, found.st_mtime_ns)


@lru_cache(maxsize=8)
def _cached_places(path: Path, *_state: int) -> Mapping[str, tuple[int, int]]:
    places: Mapping[str, tuple[int, int]] = sealed_content(path)["members"]
    return places

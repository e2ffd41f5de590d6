"""The files of a tar, one after the other, without any of the format's turns.

tarfile's own reader follows whatever a header asks for: headers in headers, maps of holes, long
names of any length. Here a header is a file, or a pax header that may say size and name, or it is
given back for what it is, to be refused. Source of the format: POSIX.1-2017, pax.
"""

import re
import tarfile
from collections.abc import Iterator
from typing import IO, Final

from virnucpro.errors import BundleError

__all__ = ["files_of", "is_file"]

_BLOCK: Final = tarfile.BLOCKSIZE
_MOST_PAX_BYTES: Final = 1 << 16
_RECORD: Final = re.compile(rb"(\d{1,5}) ([^=\n]+)=")
_MOST_DIGITS: Final = 18


def is_file(member: tarfile.TarInfo) -> bool:
    """Tell a file of plain bytes from links, devices, folders and files with holes."""
    return member.type == tarfile.REGTYPE


def files_of(stream: IO[bytes]) -> Iterator[tarfile.TarInfo]:
    """Read the headers of a tar, uncompressed; the stream stands at the content of each.

    What is no file is given too, without what follows it: nothing can be read behind it.

    Raises
    ------
    BundleError
        Without the name of the archive, when what stands at the place of a header is none.
    OSError
        When it cannot be read.
    """
    said: dict[str, str] | None = None
    while (member := _header(stream)) is not None:
        if member.type == tarfile.XHDTYPE and said is None:
            said = _pax_records(stream, member.size)
            continue
        _apply(member, said or {})
        said = None
        content = stream.tell()
        yield member
        stream.seek(content + _whole_blocks(member.size))


def _header(stream: IO[bytes]) -> tarfile.TarInfo | None:
    block = stream.read(_BLOCK)
    if block == bytes(_BLOCK):
        return None
    if len(block) < _BLOCK:
        raise BundleError("is cut off")
    try:
        member = tarfile.TarInfo.frombuf(block, "utf-8", "surrogateescape")
    except tarfile.TarError as error:
        raise BundleError(f"cannot be read ({error})") from None
    if member.size < 0:
        raise BundleError(f"cannot be read (a header says {member.size:,} bytes)")
    return member


def _pax_records(stream: IO[bytes], size: int) -> dict[str, str]:
    """Read ``length name=value`` and a line end, again and again; the length counts all of it."""
    if size > _MOST_PAX_BYTES:
        raise BundleError(f"cannot be read (a pax header of {size:,} bytes)")
    text = stream.read(_whole_blocks(size))[:size]
    said: dict[str, str] = {}
    place = 0
    while place < size:
        match = _RECORD.match(text, place)
        end = place + int(match[1]) if match else 0
        if match is None or end <= match.end() or text[end - 1 : end] != b"\n":
            raise BundleError("cannot be read (a pax header of something else than records)")
        value = text[match.end() : end - 1].decode("utf-8", "surrogateescape")
        said[match[2].decode("utf-8", "surrogateescape")] = value
        place = end
    return said


def _apply(member: tarfile.TarInfo, said: dict[str, str]) -> None:
    """Let a pax header's name and size stand for the member's own."""
    if any(name.startswith("GNU.sparse") for name in said):
        raise BundleError("cannot be read (it holds a file with holes)")
    member.name = said.get("path", member.name)
    if "size" in said:
        digits = said["size"]
        if not (digits.isascii() and digits.isdecimal() and len(digits) <= _MOST_DIGITS):
            raise BundleError(f"cannot be read (a pax header says {digits[:40]!r} bytes)")
        member.size = int(digits)


def _whole_blocks(size: int) -> int:
    return -(-size // _BLOCK) * _BLOCK

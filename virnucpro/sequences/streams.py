"""The decompressed content of an input file, in blocks of bytes."""

import io
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from xopen import xopen

from virnucpro.errors import InputError

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

__all__ = ["STANDARD_INPUT", "BlockStream", "read_blocks"]

STANDARD_INPUT = "-"
"""Name of standard input in a list of files."""

_BLOCK_BYTES = 1 << 20

# First bytes of a file, since names may be wrong. Sources: RFC 1952; the bzip2 and xz file
# formats; RFC 8878, whose skippable frames may come first.
_SIGNATURES = {
    b"\x1f\x8b": "gz",
    b"BZh": "bz2",
    b"\xfd7zXZ\x00": "xz",
    b"\x28\xb5\x2f\xfd": "zst",
    **{bytes([low, 0x2A, 0x4D, 0x18]): "zst" for low in range(0x50, 0x60)},
}
_SIGNATURE_BYTES = max(map(len, _SIGNATURES))


class BlockStream(io.RawIOBase):
    """Binary stream over blocks of bytes.

    Parameters
    ----------
    blocks
        Blocks of any size; an empty block does not end the stream.
    """

    def __init__(self, blocks: Iterator[bytes]) -> None:
        self._blocks = blocks
        self._ready = memoryview(b"")

    def readable(self) -> bool:
        """Return True."""
        return True

    def readinto(self, buffer: "WriteableBuffer") -> int:
        """Copy bytes of the current block into the buffer; return their number."""
        while not self._ready:
            block = next(self._blocks, None)
            if block is None:
                return 0
            self._ready = memoryview(block)
        view = memoryview(buffer).cast("B")
        size = min(len(view), len(self._ready))
        view[:size] = self._ready[:size]
        self._ready = self._ready[size:]
        return size


def read_blocks(path: str) -> Iterator[bytes]:
    """Read a file in blocks; decompress gzip, bzip2, xz and zstandard, detected by content.

    Decompression runs in this process and thread.

    Parameters
    ----------
    path
        A file, a named pipe, or ``-`` for standard input, which is not closed.

    Yields
    ------
    bytes
        About 1 MiB, never empty.

    Raises
    ------
    InputError
        When the file cannot be opened or read, or its compressed data are damaged or incomplete.
    """
    with ExitStack() as stack:
        raw = _open(path, stack)
        signature = _read(raw, _SIGNATURE_BYTES, path)
        first = signature + _read(raw, _BLOCK_BYTES, path)
        plain = chain([first], iter(lambda: _read(raw, _BLOCK_BYTES, path), b""))
        compression = next(
            (name for start, name in _SIGNATURES.items() if signature.startswith(start)), None
        )
        if compression is None:
            yield from filter(None, plain)
        else:
            yield from _decompress(plain, compression, path)


def _open(path: str, stack: ExitStack) -> BinaryIO:
    if path == STANDARD_INPUT:
        if sys.stdin is None:
            raise InputError("-: standard input is closed; name a file or use a pipe")
        return sys.stdin.buffer
    try:
        return stack.enter_context(Path(path).open("rb"))
    except IsADirectoryError as error:
        raise InputError(
            f"{path}: this is a directory; name its files, for example {Path(path) / '*.fa'}"
        ) from error
    except OSError as error:
        raise InputError(
            f"{path}: the file cannot be opened ({error.strerror}); check its path and permissions"
        ) from error


def _read(stream: BinaryIO, size: int, path: str) -> bytes:
    try:
        return stream.read(size)
    except OSError as error:
        raise InputError(
            f"{path}: the file cannot be read ({error}); check the disk or copy the file again"
        ) from error


def _decompress(blocks: Iterator[bytes], compression: str, path: str) -> Iterator[bytes]:
    source = io.BufferedReader(BlockStream(blocks), _BLOCK_BYTES)
    try:
        # Without threads: with them, xopen starts an external program for each file.
        with xopen(source, "rb", threads=0, format=compression) as stream:
            while block := stream.read(_BLOCK_BYTES):
                yield block
    except InputError:
        raise
    except Exception as error:
        # Each decompressor has exception types of its own, some of them only in C modules.
        raise InputError(
            f"{path}: the {compression} data are damaged or cut off ({error}); "
            "copy or download the file again"
        ) from error

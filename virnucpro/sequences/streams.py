"""The bytes of an input file, decompressed, in blocks."""

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
"""What stands for standard input in a list of files."""

_BLOCK_BYTES = 1 << 20

# Told by content: files are renamed, and standard input has no name. Sources: RFC 1952; the bzip2
# and xz file formats; RFC 8878, of which the skippable frames may come first.
_SIGNATURES = {
    b"\x1f\x8b": "gz",
    b"BZh": "bz2",
    b"\xfd7zXZ\x00": "xz",
    b"\x28\xb5\x2f\xfd": "zst",
    **{bytes([low, 0x2A, 0x4D, 0x18]): "zst" for low in range(0x50, 0x60)},
}
_SIGNATURE_BYTES = max(map(len, _SIGNATURES))


class BlockStream(io.RawIOBase):
    """Lets blocks of bytes be read as a stream, where a library wants one.

    Parameters
    ----------
    blocks
        Blocks of any size; an empty one does not end the stream.
    """

    def __init__(self, blocks: Iterator[bytes]) -> None:
        self._blocks = blocks
        self._ready = memoryview(b"")

    def readable(self) -> bool:
        """Say yes."""
        return True

    def readinto(self, buffer: "WriteableBuffer") -> int:
        """Fill the buffer, as far as the block at hand goes."""
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
    """Read a file in blocks, decompressing gzip, bzip2, xz and zstandard by their content.

    Decompression happens in this process and thread.

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
        When the file is not there, is a directory, cannot be read, or when its compressed data are
        damaged or cut off.
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
            raise InputError(f"{path}: standard input is closed; name a file, or pipe one in")
        return sys.stdin.buffer
    try:
        return stack.enter_context(Path(path).open("rb"))
    except FileNotFoundError as error:
        raise InputError(f"{path}: there is no such file; check the name") from error
    except IsADirectoryError as error:
        raise InputError(
            f"{path}: this is a directory; name the files in it, such as {Path(path) / '*.fa'}"
        ) from error
    except PermissionError as error:
        raise InputError(
            f"{path}: no permission to read this file; change it or ask its owner"
        ) from error
    except OSError as error:
        raise InputError(f"{path}: cannot open this file ({error}); check the path") from error


def _read(stream: BinaryIO, size: int, path: str) -> bytes:
    try:
        return stream.read(size)
    except OSError as error:
        raise InputError(
            f"{path}: reading failed ({error}); check the disk, or copy the file and try again"
        ) from error


def _decompress(blocks: Iterator[bytes], compression: str, path: str) -> Iterator[bytes]:
    source = io.BufferedReader(BlockStream(blocks), _BLOCK_BYTES)
    try:
        # No threads: xopen would start a program for each file.
        with xopen(source, "rb", threads=0, format=compression) as stream:
            while block := stream.read(_BLOCK_BYTES):
                yield block
    except InputError:
        raise
    except Exception as error:
        # Every decompressor has an exception type of its own, some of them in C modules only.
        raise InputError(
            f"{path}: the {compression} data are damaged or cut off ({error}); "
            "copy or download the file again"
        ) from error

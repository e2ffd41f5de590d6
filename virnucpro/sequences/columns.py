"""Columns of an index: one .npy file each, written as a stream, opened by memory map."""

import io
import mmap
import os
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Self

import numpy as np
import numpy.typing as npt

from virnucpro.errors import IndexFormatError

__all__ = [
    "ADVICE",
    "COLUMNS",
    "PASSING_COLUMNS",
    "Column",
    "ColumnFile",
    "ColumnWriter",
    "checksum",
    "column_path",
]

COLUMNS: dict[str, np.dtype[Any]] = {
    name: np.dtype(kind)
    for name, kind in {
        "bases": "u1",
        "names": "u1",
        "name_first": "<i8",
        "record_lengths": "<i8",
        "record_first_base": "<i8",
        "record_status": "u1",
        "record_first_window": "<i8",
        "window_starts": "<i8",
        "window_ends": "<i8",
        "window_first_item": "<i8",
        "item_frame": "u1",
        "item_row": "<i8",
        "row_lengths": "<i4",
        "row_first_base": "<i8",
        "row_span": "<i4",
        "row_frame": "u1",
    }.items()
}
"""Every column of an index and its type.

``name_first`` and ``x_first_y`` hold one entry more than there are owners: owner ``i`` has
``[i]:[i + 1]``. ``bases`` holds all records' letters one behind the other, ``names`` all names in
UTF-8. A row is told by the first item that has its content: ``row_first_base`` and ``row_span``
are the place of that item's window in ``bases``, ``row_frame`` its frame.
"""

PASSING_COLUMNS: dict[str, np.dtype[Any]] = {
    "item_digest": np.dtype("<u8"),
    "item_length": np.dtype("<i4"),
}
"""Columns that an index's builder needs to tell its rows, and removes; two digests an item."""

ADVICE = "start the run anew (--force)"
"""What helps against a damaged index."""

_BUFFER_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class ColumnFile:
    """What a whole and healthy column file has: bytes, and the CRC-32 of its array."""

    bytes: int
    crc32: int


def column_path(folder: Path, name: str) -> Path:
    """Name a column's file."""
    return folder / f"{name}.npy"


class ColumnWriter:
    """Writes a column piece after piece; `close` makes the file whole.

    The array's length is known last, so that its header is written a second time. As a context,
    it lets go of the file whatever happens.

    Parameters
    ----------
    folder, name
        Of one of `COLUMNS` or `PASSING_COLUMNS`.
    """

    def __init__(self, folder: Path, name: str) -> None:
        self._dtype = _dtype(name)
        self._stream = column_path(folder, name).open("wb", buffering=_BUFFER_BYTES)
        self._header_bytes = self._stream.write(_header(self._dtype, 0))
        self._length = 0
        self._crc32 = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stream.close()

    def append(self, values: npt.ArrayLike | bytes) -> None:
        """Write more values; bytes are taken as they are."""
        data = values if isinstance(values, bytes) else np.asarray(values, self._dtype).tobytes()
        self._stream.write(data)
        self._crc32 = zlib.crc32(data, self._crc32)
        self._length += len(data) // self._dtype.itemsize

    def close(self) -> ColumnFile:
        """Write the header, make the file last, and sum it up."""
        with self._stream as stream:
            stream.seek(0)
            stream.write(_header(self._dtype, self._length))
            stream.flush()
            os.fsync(stream.fileno())
        size = self._header_bytes + self._length * self._dtype.itemsize
        return ColumnFile(size, self._crc32)


def _dtype(name: str) -> np.dtype[Any]:
    return COLUMNS[name] if name in COLUMNS else PASSING_COLUMNS[name]


def _header(dtype: np.dtype[Any], length: int) -> bytes:
    """Make a .npy header; numpy leaves room for the length to grow in place."""
    stream = io.BytesIO()
    header = {"descr": dtype.str, "fortran_order": False, "shape": (length,)}
    np.lib.format.write_array_header_1_0(stream, header)
    return stream.getvalue()


class Column:
    """A column on disk, mapped into memory.

    Rows are sorted by length, so that what they are made of lies scattered: without `release`, a
    process that reads all rows ends with whole files resident.

    Parameters
    ----------
    folder, name
        Of one of `COLUMNS` or `PASSING_COLUMNS`.

    Attributes
    ----------
    values
        The column as a read-only array, read where it is touched.

    Raises
    ------
    IndexFormatError
        When the file is not such a column.
    """

    def __init__(self, folder: Path, name: str) -> None:
        with _opened(folder, name) as stream:
            self._origin = stream.tell()
            self._map = mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ)
        dtype = _dtype(name)
        length = (len(self._map) - self._origin) // dtype.itemsize
        self.values: npt.NDArray[Any] = np.frombuffer(self._map, dtype, length, self._origin)

    def read(self, first: int, last: int) -> bytes:
        """Copy the values ``first:last`` of a column of bytes."""
        return self._map[self._origin + first : self._origin + last]

    def release(self) -> None:
        """Let go of the pages that were read; they stay in the system's cache."""
        self._map.madvise(mmap.MADV_DONTNEED)


def checksum(folder: Path, name: str) -> int:
    """Compute the CRC-32 of a column's array, reading the file without mapping it.

    Raises
    ------
    IndexFormatError
        When the file is not such a column.
    """
    total = 0
    with _opened(folder, name) as stream:
        while block := stream.read(_BUFFER_BYTES):
            total = zlib.crc32(block, total)
    return total


@contextmanager
def _opened(folder: Path, name: str) -> Iterator[BinaryIO]:
    """Open a column's file where its array begins."""
    path = column_path(folder, name)
    expected = _dtype(name)
    header_bytes = len(_header(expected, 0))
    with path.open("rb") as stream:
        length, rest = divmod(path.stat().st_size - header_bytes, expected.itemsize)
        # Compared and not parsed: numpy's parser meets a flipped byte with errors of many kinds.
        if rest or length < 0 or stream.read(header_bytes) != _header(expected, length):
            raise IndexFormatError(f"{path}: is no column of type {expected}; {ADVICE}")
        yield stream

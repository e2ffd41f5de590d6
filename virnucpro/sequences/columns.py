"""Columns of an index: one .npy file each, written as a stream, opened by memory map."""

import io
import os
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np
import numpy.typing as npt

__all__ = ["COLUMNS", "ColumnFile", "ColumnWriter", "checksum", "column_path", "open_column"]

COLUMNS: Mapping[str, np.dtype[Any]] = {
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
    path
        A new file.
    dtype
        Of the column.
    """

    def __init__(self, path: Path, dtype: np.dtype[Any]) -> None:
        self._dtype = dtype
        self._stream = path.open("wb", buffering=_BUFFER_BYTES)
        self._header_bytes = self._stream.write(_header(dtype, 0))
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


def _header(dtype: np.dtype[Any], length: int) -> bytes:
    """Make a .npy header; numpy leaves room for the length to grow in place."""
    stream = io.BytesIO()
    header = {"descr": dtype.str, "fortran_order": False, "shape": (length,)}
    np.lib.format.write_array_header_1_0(stream, header)
    return stream.getvalue()


def open_column(path: Path) -> npt.NDArray[Any]:
    """Map a column into memory, to be read.

    Raises
    ------
    OSError, ValueError
        When there is no such file, or it is no .npy file.
    """
    column: npt.NDArray[Any] = np.load(path, mmap_mode="r", allow_pickle=False)
    return column


def checksum(path: Path) -> int:
    """Compute the CRC-32 of a column's array, reading the file without mapping it."""
    total = 0
    with path.open("rb") as stream:
        np.lib.format.read_magic(stream)
        np.lib.format.read_array_header_1_0(stream)
        while block := stream.read(_BUFFER_BYTES):
            total = zlib.crc32(block, total)
    return total

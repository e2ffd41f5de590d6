"""The file of an index: its columns as .npy images, and a header with their places and checksums.

Columns are written in pieces, into a file each; `write_header` appends them to that of the letters,
the longest one. They are read by memory map. A `MemoryFolder` has them without files.
"""

import errno
import io
import mmap
import os
import shutil
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, BinaryIO, Self, TypeAlias

import numpy as np
import numpy.typing as npt

from virnucpro.errors import IndexFormatError
from virnucpro.joined import seal, sealed_content
from virnucpro.sequences.spec import (
    SCHEMA_VERSION,
    IndexSpec,
    InputFile,
    fingerprint,
)

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
        "record_first_piece": "<i8",
        "window_starts": "<i8",
        "window_ends": "<i8",
        "window_first_item": "<i8",
        "item_frame": "u1",
        "item_row": "<i8",
        "piece_row": "<i8",
        "row_lengths": "<i4",
        "row_first_base": "<i8",
        "row_span": "<i4",
        "row_frame": "u1",
    }.items()
}
"""Columns of every index and their types.

``name_first`` and ``x_first_y`` contain bounds: owner ``i`` has the members ``[i]:[i + 1]``, so
there is one entry more than there are owners. ``bases`` contains the letters of all records but too
long ones, ``names`` all names in UTF-8. A row is located by the first item with the same content:
``row_first_base`` and ``row_span`` are start and length of that item's window in ``bases`` (of a
stretch: of its codons, with the offset of its frame; of a piece: its own), ``row_frame`` is its
frame.
"""

OPTIONAL_COLUMNS: dict[str, np.dtype[Any]] = {
    "qualities": np.dtype("u1"),
    "mate_lengths": np.dtype("<i8"),
}
"""Columns that an index may lack.

``qualities`` contains one character for each letter of ``bases``, if all records are FASTQ.
``mate_lengths`` contains the letters of the first mate of each pair, and of a single read its own.
"""

TEMPORARY_COLUMNS: dict[str, np.dtype[Any]] = {
    "item_digest": np.dtype("<u8"),
    "item_length": np.dtype("<i4"),
    "item_first_base": np.dtype("<i8"),
    "item_span": np.dtype("<i4"),
    "piece_digest": np.dtype("<u8"),
    "piece_length": np.dtype("<i4"),
    "piece_first_base": np.dtype("<i8"),
    "name_hash": np.dtype("<i8"),
}
"""Temporary columns, from which the builder derives the rows and counts repeated names.

A digest is two 64-bit numbers. At the end, the pieces follow the items in the columns that
both have. The hashes of names differ between processes.
"""

ADVICE = "restore the file from a copy, or start the run anew in another folder"
"""Advice for a damaged index."""

_DTYPES = COLUMNS | OPTIONAL_COLUMNS | TEMPORARY_COLUMNS
_BUFFER_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class ColumnFile:
    """Size of a column's .npy image in bytes, CRC-32 of its array, and place in the index file."""

    bytes: int
    crc32: int
    start: int = 0


def column_path(folder: Path, name: str) -> Path:
    """Return the path of the file of column `name` in `folder`, while an index is written."""
    return folder / f"{name}.npy"


def index_file(folder: Path) -> Path:
    """Return the path of the file of the complete index in `folder`."""
    return folder / "columns.bin"


class ColumnWriter:
    """Writes a column in pieces; `close` completes the file.

    The length of the array is known only at the end, so the header is written twice. Leaving the
    ``with`` block closes the file, also after an error.

    Parameters
    ----------
    folder, name
        Folder of the index, and the name of a column of this module.
    """

    def __init__(self, folder: Path, name: str) -> None:
        self._dtype = _DTYPES[name]
        self._stream = column_path(folder, name).open("wb", buffering=_BUFFER_BYTES)
        self._header_bytes = self._stream.write(_header(self._dtype, 0))
        self._length = 0
        self._crc32 = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stream.close()

    def append(self, values: npt.ArrayLike | bytes) -> None:
        """Append values to the column; bytes are written unchanged."""
        data = values if isinstance(values, bytes) else np.asarray(values, self._dtype).tobytes()
        self._stream.write(data)
        self._crc32 = zlib.crc32(data, self._crc32)
        self._length += len(data) // self._dtype.itemsize

    def close(self) -> ColumnFile:
        """Write the header; return size and checksum of the file."""
        with self._stream as stream:
            stream.seek(0)
            stream.write(_header(self._dtype, self._length))
        size = self._header_bytes + self._length * self._dtype.itemsize
        return ColumnFile(size, self._crc32)


def write_column(folder: "Folder", name: str, values: npt.ArrayLike) -> ColumnFile:
    """Write all values of a column; return size and checksum of the column's file."""
    with open_writer(folder, name) as writer:
        writer.append(values)
        return writer.close()


def _header(dtype: np.dtype[Any], length: int) -> bytes:
    """Return the .npy header of `length` values; the header's size is always the same."""
    stream = io.BytesIO()
    header = {"descr": dtype.str, "fortran_order": False, "shape": (length,)}
    np.lib.format.write_array_header_1_0(stream, header)
    return stream.getvalue()


class Column:
    """A column of an index as a memory-mapped, read-only array.

    Rows are sorted by length, so their bases are scattered over the file. Without `release`, a
    process that reads all rows would have the whole file in memory.

    Parameters
    ----------
    folder, name
        Folder of the index, and the name of a column of this module.
    place
        Place in the index file; None for a column that has a file of its own.

    Attributes
    ----------
    values
        The column as a read-only array; pages are read on access.

    Raises
    ------
    IndexFormatError
        If the file is not a valid file of this column.
    """

    def __init__(self, folder: Path, name: str, place: ColumnFile | None = None) -> None:
        with _opened(folder, name, place) as (stream, length):
            first = stream.tell() // mmap.ALLOCATIONGRANULARITY * mmap.ALLOCATIONGRANULARITY
            self._origin = stream.tell() - first
            size = self._origin + length * _DTYPES[name].itemsize
            self._map = mmap.mmap(stream.fileno(), size, access=mmap.ACCESS_READ, offset=first)
        values = np.frombuffer(self._map, _DTYPES[name], length, self._origin)
        self.values: npt.NDArray[Any] = values

    def read(self, first: int, last: int) -> bytes:
        """Return the values ``first:last`` of a column of bytes."""
        return self._map[self._origin + first : self._origin + last]

    @contextmanager
    def scattered_reads(self) -> Iterator[None]:
        """Read single pages from disk on access, without readahead, until the block ends."""
        self._map.madvise(mmap.MADV_RANDOM)
        try:
            yield
        finally:
            self._map.madvise(mmap.MADV_NORMAL)

    def release(self) -> None:
        """Unmap all pages of the column that were read; they stay in the kernel's page cache."""
        self._map.madvise(mmap.MADV_DONTNEED)


class MemoryColumn(Column, ColumnWriter):
    """A column in memory, with the methods of `Column` and of `ColumnWriter`."""

    def __init__(self, name: str) -> None:
        self._dtype = _DTYPES[name]
        self._pieces: list[bytes] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Do nothing: there is no file."""

    def append(self, values: npt.ArrayLike | bytes) -> None:
        """Append values to the column; bytes are kept unchanged."""
        piece = values if isinstance(values, bytes) else np.asarray(values, self._dtype).tobytes()
        self._pieces.append(piece)

    def close(self) -> ColumnFile:
        """Complete the column; return the size of its array."""
        self._content = b"".join(self._pieces)
        self._pieces.clear()
        self.values = np.frombuffer(self._content, self._dtype)
        return ColumnFile(len(self._content), 0)

    def read(self, first: int, last: int) -> bytes:
        """Return the values ``first:last`` of a column of bytes."""
        return self._content[first:last]

    @contextmanager
    def scattered_reads(self) -> Iterator[None]:
        """Do nothing."""
        yield

    def release(self) -> None:
        """Do nothing."""


class MemoryFolder(dict[str, MemoryColumn]):
    """Columns of an index by name, in place of a folder with their files."""


Folder: TypeAlias = Path | MemoryFolder


def open_writer(folder: Folder, name: str) -> ColumnWriter:
    """Return a new column, to be written."""
    if isinstance(folder, Path):
        return ColumnWriter(folder, name)
    folder[name] = MemoryColumn(name)
    return folder[name]


def open_column(folder: Folder, name: str, place: ColumnFile | None = None) -> Column:
    """Return a column that is complete; parameters are those of `Column`."""
    return Column(folder, name, place) if isinstance(folder, Path) else folder[name]


def checksum(folder: Path, name: str, place: ColumnFile) -> int:
    """Return the CRC-32 of a column's array, read without a memory map.

    Raises
    ------
    IndexFormatError
        If the file is not a valid file of this column.
    """
    total = 0
    with _opened(folder, name, place) as (stream, length):
        left = length * _DTYPES[name].itemsize
        while block := stream.read(min(left, _BUFFER_BYTES)):
            total = zlib.crc32(block, total)
            left -= len(block)
    return total


@contextmanager
def _opened(folder: Path, name: str, place: ColumnFile | None) -> Iterator[tuple[BinaryIO, int]]:
    """Yield a file, positioned at the start of the array of a column, and the array's length."""
    path = column_path(folder, name) if place is None else index_file(folder)
    expected = _DTYPES[name]
    header_bytes = len(_header(expected, 0))
    with path.open("rb") as stream:
        size = path.stat().st_size if place is None else place.bytes
        length, rest = divmod(size - header_bytes, expected.itemsize)
        stream.seek(0 if place is None else place.start)
        # The header is compared, not parsed: numpy's parser raises many error types for damaged
        # bytes.
        if rest or length < 0 or stream.read(header_bytes) != _header(expected, length):
            raise IndexFormatError(f"{path}: {name} is not a column of type {expected}; {ADVICE}")
        yield stream, length


_FORMAT = "virnucpro sequence index"
_ALIGNMENT = 64
"""Bytes; a column begins at a multiple of them, as NumPy's arrays in memory."""


@dataclass(frozen=True, slots=True)
class Header:
    """Content of the header of an index.

    Attributes
    ----------
    spec, inputs
        Parameters and input files of the index.
    files
        Size, checksum and place of every column.
    warnings
        Warnings about the inputs, such as records with invalid letters.
    """

    spec: IndexSpec
    inputs: tuple[InputFile, ...]
    files: Mapping[str, ColumnFile]
    warnings: tuple[str, ...] = ()

    @property
    def fingerprint(self) -> str:
        """Digest of the inputs' content, the specification and the version of the index format."""
        return fingerprint(self.inputs, self.spec)


def write_header(folder: Path, header: Header) -> None:
    """Join the columns in one file, with the content of `header` at its end."""
    names = [name for name in COLUMNS | OPTIONAL_COLUMNS if name in header.files]
    path, files = index_file(folder), {}
    column_path(folder, names[0]).rename(path)  # not copied: it is the largest
    with path.open("r+b") as stream:
        for name in names:
            start = 0
            if name != names[0]:
                start = stream.seek(-(-stream.seek(0, os.SEEK_END) // _ALIGNMENT) * _ALIGNMENT)
                with column_path(folder, name).open("rb") as column:
                    shutil.copyfileobj(column, stream, _BUFFER_BYTES)
                column_path(folder, name).unlink()
            files[name] = replace(header.files[name], start=start)
        content = {
            "format": _FORMAT,
            "schema": SCHEMA_VERSION,
            "fingerprint": header.fingerprint,
            "spec": header.spec.as_json(),
            "inputs": [asdict(file) for file in header.inputs],
            "files": {name: asdict(file) for name, file in files.items()},
            "warnings": header.warnings,
        }
        seal(stream, content)


def read_header(folder: Path) -> Header:
    """Return the header of an index.

    Raises
    ------
    IndexFormatError
        When the folder has no index, an index of another version, or a damaged index.
    """
    path = index_file(folder)
    try:
        content = sealed_content(path)
    except FileNotFoundError as error:
        raise IndexFormatError(f"{folder}: no sequence index found; {ADVICE}") from error
    except OSError as error:
        if error.errno != errno.EBADMSG:
            raise
        raise IndexFormatError(f"{path}: {error.strerror}; {ADVICE}") from error
    if content.get("format") != _FORMAT:
        raise IndexFormatError(f"{path}: not a sequence index; {ADVICE}")
    if content.get("schema") != SCHEMA_VERSION:
        raise IndexFormatError(
            f"{folder}: a sequence index of version {content.get('schema')}, but this program "
            f"reads version {SCHEMA_VERSION}; use the virnucpro version "
            f"that wrote the index, or {ADVICE}"
        )
    return Header(
        IndexSpec.from_json(content["spec"]),
        tuple(InputFile(**file) for file in content["inputs"]),
        {name: ColumnFile(**file) for name, file in content["files"].items()},
        tuple(content["warnings"]),
    )

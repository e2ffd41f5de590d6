"""Create embeddings.h5: ``os.pwrite`` writes the vectors, HDF5 writes all other data.

HDF5 crashes the process with a segmentation fault if the disk is full. Therefore HDF5 writes only
small data, through a file object whose methods never fail. The vectors (nearly all bytes) are
written without HDF5 into reserved space. A failure in either step raises an OSError.
"""

import errno
import io
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sized
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING, Concatenate, Final, ParamSpec, TypeVar

import h5py
import numpy as np

from virnucpro.arrays import ByteArray, IntArray, RealArray
from virnucpro.store.schema import SCHEMA_VERSION, RowState
from virnucpro.store.segment import is_short_of_space

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer, WriteableBuffer

Arguments = ParamSpec("Arguments")
Returned = TypeVar("Returned")

_COLUMNS: Final = {
    "sequence_ids": h5py.string_dtype(),
    "status": np.dtype(np.uint8),
    "record": np.dtype(np.int64),
    "file": np.dtype(np.uint32),
    "files": h5py.string_dtype(),
    "offsets": np.dtype(np.int64),
}
"""Type of each dataset beside the vectors."""
_COLUMN_ATTRIBUTES: Final[Mapping[str, Mapping[str, object]]] = {
    "sequence_ids": {"order": "input"},
    "status": {"codes": [state.name.lower() for state in RowState]},
}
_AT_ONCE: Final = 256 << 10
"""Bytes per system call; pieces of 1 MB or more need three times the CPU time (decision 0070)."""
_NO_PREALLOCATION = {errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL}


@dataclass(frozen=True, slots=True)
class Layout:
    """Shape, dtype and attributes of embeddings.h5.

    Attributes
    ----------
    n_items : int
        Number of vectors.
    views : mapping of str to int
        Number of dimensions of each view, in the order in which the vectors are joined.
    dtype : numpy.dtype
        float16 or float32.
    attributes : mapping of str to object
        Attributes of the file, without format and version.
    offsets : numpy.ndarray or None
        int64 (n_items + 1,), with one vector per residue: the vectors of item i are ``offsets[i]``
        to ``offsets[i + 1] - 1``. None if each item has one vector.
    """

    n_items: int
    views: Mapping[str, int]
    dtype: np.dtype[np.floating]
    attributes: Mapping[str, object]
    offsets: IntArray | None = None

    @property
    def n_vectors(self) -> int:
        """Number of vectors."""
        return self.n_items if self.offsets is None else int(self.offsets[-1])

    @property
    def dim(self) -> int:
        """Number of dimensions of an item's vector: the sum over all views."""
        return sum(self.views.values())

    @property
    def item_bytes(self) -> int:
        """Size in bytes of an item's vector, which joins all views."""
        return self.dim * self.dtype.itemsize


@dataclass(frozen=True, eq=False, slots=True)
class ItemVectors:
    """Vectors of several items.

    Attributes
    ----------
    items : numpy.ndarray
        int64 (n,), ascending.
    positions : numpy.ndarray
        int64 (n,), position of the vector of each item in `vectors`.
    vectors : numpy.ndarray
        float16 or float32 (m, D), contiguous; some may belong to no item.
    """

    items: IntArray
    positions: IntArray
    vectors: RealArray

    @property
    def bytes(self) -> ByteArray:
        """The vectors as uint8 (m, bytes per vector), in the same memory."""
        return self.vectors.view(np.uint8)

    def groups(self) -> Iterator[tuple[int, int, int]]:
        """Split the items into groups with consecutive items and consecutive vectors.

        Yields
        ------
        item, first, last : int
            For each group: its first item, and its vectors ``vectors[first:last]``.
        """
        together = (np.diff(self.items) == 1) & (np.diff(self.positions) == 1)
        starts = np.flatnonzero(np.concatenate([[True], ~together])[: len(self.items)])
        first = self.positions[starts]
        last = first + np.diff(starts, append=len(self.items))
        yield from zip(self.items[starts].tolist(), first.tolist(), last.tolist(), strict=True)


class EmbeddingsFile:
    """Writes embeddings.h5: the constructor writes all but the vectors, `write` adds the vectors.

    Parameters
    ----------
    stream : file object
        Empty binary file, open for reading and writing. It is not closed here.
    layout : Layout
        Shape, dtype and attributes of the file.
    columns : mapping of str to iterable of sized
        Values of datasets beside the vectors, in blocks: ``sequence_ids``, ``status`` (codes of
        `RowState`) and others of `_COLUMNS`.
    reserve : bool
        If True, allocate disk space for the vectors now. If False, make the file sparse.

    Attributes
    ----------
    offset : int
        Position of the first vector in the file, in bytes.
    reserved : bool
        Whether the vectors have their disk space.

    Raises
    ------
    OSError
        If the disk has too little space for the vectors, or a write fails. A note on the error
        states the bytes needed and available.
    """

    def __init__(
        self,
        stream: IO[bytes],
        layout: Layout,
        columns: Mapping[str, tuple[int, Iterable[Sized]]],
        *,
        reserve: bool = True,
    ) -> None:
        self._handle = stream.fileno()
        self._layout = layout
        with noting_space(self._handle, layout):
            self.offset = in_hdf5_thread(_write_layout, self._handle, layout, columns)
            size = layout.n_vectors * layout.item_bytes
            self.reserved = reserve and _allocate(self._handle, self.offset, size)

    def write(self, some: ItemVectors) -> None:
        """Write vectors in groups of consecutive items; a group is not copied.

        Raises
        ------
        OSError
            If the write fails.
        """
        data, size = some.bytes.reshape(-1).data, self._layout.item_bytes
        for item, first, last in some.groups():
            write_all(self._handle, data[first * size : last * size], self.offset + item * size)

    def update(self, attributes: Mapping[str, object], status: Iterable[ByteArray]) -> None:
        """Overwrite attributes by values of the same type, and the states of all items.

        Parameters
        ----------
        attributes : mapping of str to object
            Numbers and bools.
        status : iterable of numpy.ndarray
            As for the constructor.

        Raises
        ------
        OSError
            If the write fails.
        """
        in_hdf5_thread(_rewrite_layout, self._handle, attributes, status)


class _UnfailingFile(io.RawIOBase):
    """File object for HDF5 whose methods never fail; the first error is stored.

    After the first error all writes are kept in memory, because HDF5 reads its own data again.
    The class has all methods that h5py's file-object driver calls.
    """

    def __init__(self, handle: int) -> None:
        self._handle = handle
        self._error: OSError | None = None
        self._kept: list[tuple[int, bytes]] = []
        self._position = 0
        self._end = os.fstat(handle).st_size

    def check(self) -> None:
        """Raise the first error that this file object stored; do nothing if no error occurred."""
        if self._error is not None:
            raise self._error

    def write(self, data: "ReadableBuffer") -> int:
        view = memoryview(data)
        if self._error is None:
            self._try(write_all, self._handle, view, self._position)
        if self._error is not None:
            self._kept.append((self._position, bytes(view)))
        self._position += view.nbytes
        self._end = max(self._end, self._position)
        return view.nbytes

    def readinto(self, buffer: "WriteableBuffer") -> int:
        view = memoryview(buffer)
        data = bytearray(os.pread(self._handle, view.nbytes, self._position))
        data.extend(bytes(view.nbytes - len(data)))
        for offset, kept in self._kept:
            _overlay(data, kept, offset - self._position)
        view[:] = data
        self._position += view.nbytes
        return view.nbytes

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        self._position = offset + (self._end if whence == os.SEEK_END else 0)
        return self._position

    def tell(self) -> int:
        return self._position

    def truncate(self, size: int | None = None) -> int:
        self._end = self._position if size is None else size
        if self._error is None:
            self._try(os.ftruncate, self._handle, self._end)
        return self._end

    def _try(self, call: Callable[..., object], *arguments: object) -> None:
        try:
            call(*arguments)
        except OSError as error:
            self._error = error


def in_hdf5_thread(
    write: Callable[Concatenate[_UnfailingFile, Arguments], Returned],
    handle: int,
    *arguments: Arguments.args,
    **named: Arguments.kwargs,
) -> Returned:
    """Call a function that writes a file with HDF5; raise the first error of the file."""
    unfailing = _UnfailingFile(handle)
    # HDF5 calls back into Python. A signal handler that raises within such a call would leave the
    # library in an unknown state; handlers run in the main thread only.
    with ThreadPoolExecutor(1, "virnucpro-hdf5") as thread:
        # The pool waits for a thread that it knows: not for one that still starts when a handler
        # raises, and that would write to the descriptor after the caller has closed it.
        thread.submit(int).result()
        result = thread.submit(write, unfailing, *arguments, **named).result()
    unfailing.check()
    return result


def _overlay(data: bytearray, patch: bytes, at: int) -> None:
    """Copy `patch` into `data` at position `at`; bytes that do not fit into `data` are ignored."""
    first, last = max(at, 0), min(at + len(patch), len(data))
    if first < last:
        data[first:last] = patch[first - at : last - at]


def _write_layout(
    unfailing: _UnfailingFile, layout: Layout, columns: Mapping[str, tuple[int, Iterable[Sized]]]
) -> int:
    """Write embeddings.h5 without its vectors; return the position of the vectors in bytes."""
    # This version of object headers has no times, so that the bytes depend on the content alone.
    with h5py.File(unfailing, "w", libver=("earliest", "v108")) as file:
        offset = _lay_out(file, layout, {name: size for name, (size, _) in columns.items()})
        for column, (_, blocks) in columns.items():
            _fill(file[column], blocks, unfailing)
    return offset


def _rewrite_layout(
    unfailing: _UnfailingFile, attributes: Mapping[str, object], status: Iterable[Sized]
) -> None:
    with h5py.File(unfailing, "r+", libver=("earliest", "v108")) as file:
        for name, value in attributes.items():
            file.attrs.modify(name, value)
        _fill(file["status"], status, unfailing)


def _lay_out(file: h5py.File, layout: Layout, sizes: Mapping[str, int]) -> int:
    """Create the datasets and attributes of embeddings.h5; return the position of the vectors.

    `sizes` has the lengths of the datasets beside the vectors.
    """
    file.attrs["format"] = "virnucpro embeddings"
    file.attrs["schema_version"] = SCHEMA_VERSION
    file.attrs.update(layout.attributes)
    for name, size in sizes.items():
        dataset = file.create_dataset(name, (size,), _COLUMNS[name], track_times=False)
        dataset.attrs.update(_COLUMN_ATTRIBUTES.get(name, {}))
    embeddings = _make_vectors(file, layout)
    embeddings.attrs["views"] = list(layout.views)
    embeddings.attrs["dims"] = list(layout.views.values())
    return embeddings.id.get_offset() if layout.n_vectors else 0


def _make_vectors(file: h5py.File, layout: Layout) -> h5py.Dataset:
    """Create the dataset for the vectors: contiguous, allocated, without initial values."""
    properties = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    properties.set_layout(h5py.h5d.CONTIGUOUS)
    properties.set_alloc_time(h5py.h5d.ALLOC_TIME_EARLY)
    properties.set_fill_time(h5py.h5d.FILL_TIME_NEVER)
    properties.set_obj_track_times(False)
    kind = h5py.h5t.py_create(layout.dtype, logical=True)
    space = h5py.h5s.create_simple((layout.n_vectors, layout.dim))
    name = b"embeddings" if layout.offsets is None else b"residues"
    return h5py.Dataset(h5py.h5d.create(file.id, name, kind, space, properties))


def _fill(dataset: h5py.Dataset, blocks: Iterable[Sized], unfailing: _UnfailingFile) -> None:
    start = 0
    for block in blocks:
        dataset[start : start + len(block)] = block
        start += len(block)
        unfailing.check()


def _allocate(handle: int, offset: int, size: int) -> bool:
    """Allocate `size` bytes on disk, so that a full disk is detected before vectors are written.

    Return False on a file system that cannot allocate space; nothing is done then.
    """
    if not size:
        return True
    try:
        os.posix_fallocate(handle, offset, size)
    except OSError as error:
        if error.errno not in _NO_PREALLOCATION:
            raise
        return False
    return True


@contextmanager
def noting_space(handle: int, layout: Layout) -> Iterator[None]:
    """Add a note with the bytes needed and available to an OSError of a full disk."""
    try:
        yield
    except OSError as error:
        if is_short_of_space(error):
            error.add_note(_space_note(handle, layout))
        raise


def _space_note(handle: int, layout: Layout) -> str:
    """Return a text with the bytes that the file needs, and the bytes available for the file."""
    disk = os.fstatvfs(handle)
    free = disk.f_bavail * disk.f_frsize + os.fstat(handle).st_blocks * 512
    return (
        f"{layout.n_vectors:,} vectors and their names need more than "
        f"{layout.n_vectors * layout.item_bytes:,} bytes of disk, but {free:,} are free"
    )


def write_all(handle: int, data: memoryview, offset: int) -> None:
    """Write all of `data` at `offset` of a file; repeat the system call if it was incomplete."""
    while data:
        written = os.pwrite(handle, data[:_AT_ONCE], offset)
        data = data[written:]
        offset += written

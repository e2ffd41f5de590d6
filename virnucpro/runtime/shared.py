"""Memory shared by a parent and one child: a few numbers and a ring buffer in each direction.

The memory has no name in a file system, so no file is left if the processes are killed.
"""

import mmap
import os
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from virnucpro.runtime.process import HandedOver

RING_BYTES = 16 << 20
"""Size of each ring in bytes. Unused pages take no memory."""

_HEADER_BYTES = 4096


class Region(NamedTuple):
    """Location of pieces of data, one after the other, in a ring: offset and sizes in bytes.

    `end` is the position after them, in bytes since the first byte written to the ring.
    """

    start: int
    sizes: tuple[int, ...]
    end: int


class Ring:
    """A ring buffer from one writer to one reader. The reader releases the data in order.

    Parameters
    ----------
    area
        The memory of the ring.
    consumed
        Shared number, set by the reader: the `end` of the last released region.
    """

    def __init__(self, area: memoryview, consumed: memoryview) -> None:
        self._area = area
        self._consumed = consumed
        self._written = 0

    def fits(self, pieces: Sequence[memoryview]) -> bool:
        """Return whether the pieces together have at most half of the ring's size."""
        # Half: pieces that do not fit at the end are stored at the beginning; the rest is unused.
        return sum(piece.nbytes for piece in pieces) <= len(self._area) // 2

    def put(self, pieces: Sequence[memoryview]) -> Region | None:
        """Copy the pieces into the ring; return their region, or None if the ring is too full."""
        size, sizes = len(self._area), tuple(piece.nbytes for piece in pieces)
        length, start = sum(sizes), self._written % size
        begin = self._written if start + length <= size else self._written + size - start
        end, is_empty = begin + length, self._consumed[0] == self._written
        if length > size or (end - self._consumed[0] > size and not is_empty):
            return None
        at = start = begin % size
        for piece in pieces:
            self._area[at : at + piece.nbytes] = piece.cast("B")
            at += piece.nbytes
        self._written = end
        return Region(start, sizes, end)

    def views(self, region: Region) -> Iterator[memoryview]:
        """Yield each piece of a region without a copy, valid until the next one is requested."""
        at = region.start
        for size in region.sizes:
            with self._area[at : at + size] as view:
                yield view
            at += size

    def release(self, region: Region) -> None:
        """Allow the writer to overwrite this region and all earlier regions."""
        self._consumed[0] = region.end

    def close(self) -> None:
        """Release the memoryviews of this ring, so that its memory can be unmapped."""
        self._area.release()
        self._consumed.release()


class SharedMemory:
    """The shared numbers and rings of a parent and one child.

    Parameters
    ----------
    descriptor
        In the parent: None, to allocate the memory. In the child: the file descriptor of this
        memory.

    Attributes
    ----------
    words, times
        Shared numbers: `words` has one int64, `times` two float64 (seconds).
    upwards, downwards
        The ring from the child to the parent, and the ring from the parent to the child.
    """

    def __init__(self, descriptor: int | None = None) -> None:
        fresh = descriptor is None
        self._descriptor = os.memfd_create("virnucpro-shared") if descriptor is None else descriptor
        size = _HEADER_BYTES + 2 * RING_BYTES
        if fresh:
            os.ftruncate(self._descriptor, size)
        self._mapping = mmap.mmap(self._descriptor, size)
        self._whole = memoryview(self._mapping)
        self.words = self._piece(0, 8, "q")
        self.times: memoryview[float] = self._piece(32, 48, "d")
        middle = _HEADER_BYTES + RING_BYTES
        self.upwards = Ring(self._piece(_HEADER_BYTES, middle, "B"), self._piece(64, 72, "q"))
        self.downwards = Ring(self._piece(middle, size, "B"), self._piece(72, 80, "q"))
        if not fresh:
            self.close_descriptor()

    @property
    def childs_end(self) -> HandedOver:
        """The file descriptor of the shared memory, for the child process."""
        return HandedOver(self._descriptor)

    def close_descriptor(self) -> None:
        """Close the file descriptor after the start of the child. The memory stays mapped."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def close(self) -> None:
        """Unmap the shared memory from this process."""
        self.close_descriptor()
        self.words.release()
        self.times.release()
        self.upwards.close()
        self.downwards.close()
        self._whole.release()
        self._mapping.close()

    def _piece(self, start: int, stop: int, code: str) -> "memoryview[Any]":
        with self._whole[start:stop] as piece:
            return piece.cast(code)  # type: ignore[call-overload, no-any-return]

"""Memory that a parent and one child share: a few numbers, and a ring of bytes each way.

It has no name in any file system: whatever kills either of the two, nothing is left behind.
"""

import mmap
import os
from collections.abc import Sequence
from typing import Any, NamedTuple, TypeVar

from virnucpro.runtime.process import HandedOver

__all__ = ["RING_BYTES", "Region", "Ring", "SharedMemory"]

RING_BYTES = 16 << 20
"""Size of each ring in bytes. Pages that were never used take no memory."""

_HEADER_BYTES = 4096

_Copy = TypeVar("_Copy", bytes, bytearray)


class Region(NamedTuple):
    """A piece of a ring: where it begins, its length in bytes, and where the ring is free again."""

    start: int
    length: int
    end: int


class Ring:
    """Bytes from one writer to one reader, who gives them back in the order in which they came.

    Parameters
    ----------
    area
        The bytes.
    consumed
        One shared number: how far the reader has come, counted from the beginning of time.
    """

    def __init__(self, area: memoryview, consumed: memoryview) -> None:
        self._area = area
        self._consumed = consumed
        self._written = 0

    def fits(self, pieces: Sequence[memoryview]) -> bool:
        """Say whether there is room for all these once all that came before is released."""
        # Half: a piece that does not fit before the ring's end goes to its beginning.
        return sum(piece.nbytes for piece in pieces) <= len(self._area) // 2

    def put(self, pieces: Sequence[memoryview]) -> list[Region] | None:
        """Copy pieces in; None, and nothing done, where there is no room for all of them now."""
        before = self._written
        regions: list[Region] = []
        for piece in pieces:
            region = self._put(piece, empty=self._consumed[0] == before and not regions)
            if region is None:
                self._written = before
                return None
            regions.append(region)
        return regions

    def _put(self, piece: memoryview, *, empty: bool) -> Region | None:
        size, length = len(self._area), piece.nbytes
        start = self._written % size
        begin = self._written if start + length <= size else self._written + size - start
        end = begin + length
        if length > size or (end - self._consumed[0] > size and not empty):
            return None
        start = begin % size
        self._area[start : start + length] = piece.cast("B")
        self._written = end
        return Region(start, length, end)

    def view(self, region: Region) -> memoryview:
        """Look at a piece without a copy; it may change as soon as it is released."""
        return self._area[region.start : region.start + region.length]

    def copy(self, region: Region, kind: type[_Copy]) -> _Copy:
        """Copy a piece out, as bytes or as a bytearray."""
        with self.view(region) as view:
            return kind(view)

    def release(self, region: Region) -> None:
        """Give a piece, and all that came before it, back to the writer."""
        self._consumed[0] = region.end

    def close(self) -> None:
        """Let go of the memory."""
        self._area.release()
        self._consumed.release()


class SharedMemory:
    """The numbers and rings of one pair of processes.

    Parameters
    ----------
    descriptor
        In a child: what the parent handed over. In the parent: None makes new memory.

    Attributes
    ----------
    words, times
        Numbers for the two to agree on: four int64, four float64 (seconds).
    upwards, downwards
        From the child to the parent, and the other way.
    """

    def __init__(self, descriptor: int | None = None) -> None:
        fresh = descriptor is None
        self._descriptor = os.memfd_create("virnucpro-shared") if descriptor is None else descriptor
        size = _HEADER_BYTES + 2 * RING_BYTES
        if fresh:
            os.ftruncate(self._descriptor, size)
        self._mapping = mmap.mmap(self._descriptor, size)
        self._whole = memoryview(self._mapping)
        self.words = self._piece(0, 32, "q")
        self.times: memoryview[float] = self._piece(32, 64, "d")
        middle = _HEADER_BYTES + RING_BYTES
        self.upwards = Ring(self._piece(_HEADER_BYTES, middle, "B"), self._piece(64, 72, "q"))
        self.downwards = Ring(self._piece(middle, size, "B"), self._piece(72, 80, "q"))
        if not fresh:
            self.started()

    @property
    def childs_end(self) -> HandedOver:
        """Arrives in the child as the descriptor to make its own view of."""
        return HandedOver(self._descriptor)

    def started(self) -> None:
        """Close the descriptor; the memory stays until nobody looks at it any more."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def close(self) -> None:
        """Let go of the memory; the other process keeps its view."""
        self.started()
        self.words.release()
        self.times.release()
        self.upwards.close()
        self.downwards.close()
        self._whole.release()
        self._mapping.close()

    def _piece(self, start: int, stop: int, code: str) -> "memoryview[Any]":
        with self._whole[start:stop] as piece:
            return piece.cast(code)  # type: ignore[call-overload, no-any-return]

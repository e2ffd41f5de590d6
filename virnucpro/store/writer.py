"""Segments on their way to the disk while the next unit is computed."""

from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from types import TracebackType
from typing import Self

from virnucpro.store.segment import Segment
from virnucpro.store.shard import ShardWriter

__all__ = ["SegmentWriter"]


class SegmentWriter:
    """Commits segments from a thread of its own, in the order in which they were put.

    After a segment that could not be committed none is committed any more, and every `put` and
    `close` raises its error. As a context manager it closes itself; a block that is left by an
    exception still commits what was put, and that exception goes on.

    Parameters
    ----------
    shard : ShardWriter
        Where the segments go.
    in_flight : int
        Segments that may be put and not yet committed; as many are held in memory.
    """

    def __init__(self, shard: ShardWriter, in_flight: int = 1) -> None:
        if in_flight < 1:
            raise ValueError(f"{in_flight} segments in flight: at least one must be")
        self._shard = shard
        self._in_flight = in_flight
        # Its thread ends with the writer, even with one that nobody closed.
        self._thread = ThreadPoolExecutor(1, "segment-writer")
        self._pending: deque[Future[None]] = deque()
        self._error: BaseException | None = None

    def put(self, segment: Segment, committed: Callable[[], None] | None = None) -> None:
        """Hand over a segment, as soon as fewer than `in_flight` are under way.

        Parameters
        ----------
        segment : Segment
            Its arrays must not change any more.
        committed : callable, optional
            Called from the writer's thread once the segment is on disk for good. An error of its
            own ends the writing like one of the disk.

        Raises
        ------
        ValueError, OSError
            Of an earlier segment, as `ShardWriter.commit`; this one is not committed then.
        """
        self._settle(self._in_flight - 1)
        self._pending.append(self._thread.submit(self._commit, segment, committed))

    def close(self) -> None:
        """Wait until all that was put is on disk, and end the thread.

        Raises
        ------
        ValueError, OSError
            Of a segment, as `ShardWriter.commit`.
        """
        self._thread.shutdown()
        self._settle(0)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if error is None:
            self.close()
            return
        self._thread.shutdown()
        if self._error is not None and self._error is not error:
            error.add_note(f"nor could a segment be committed: {self._error}")

    def _settle(self, allowed: int) -> None:
        """Wait until at most `allowed` segments are under way, and raise what went wrong."""
        while len(self._pending) > allowed and self._error is None:
            self._pending[0].result()
            self._pending.popleft()
        if self._error is not None:
            raise self._error

    def _commit(self, segment: Segment, committed: Callable[[], None] | None) -> None:
        if self._error is not None:
            return
        try:
            self._shard.commit(segment)
            if committed is not None:
                committed()
        except BaseException as error:  # noqa: BLE001 - whatever it is, the next put raises it
            self._error = error

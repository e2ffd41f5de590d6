"""Write segments into the shard of a rank, in a thread while the rank computes the next unit."""

from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from types import TracebackType
from typing import Self

from virnucpro.durable import sync_folder
from virnucpro.run_dir import RunDirectory
from virnucpro.store.segment import Segment, commit_segment


class ShardWriter:
    """Commits segments into the shard (folder) of one rank.

    Two processes may write into the same shard. Both compute equal numbers for a unit, up to
    rounding, and a rename replaces one complete file by another complete file.

    Raises
    ------
    OSError
        If the shard cannot be created, for example because the run folder was deleted.
    """

    def __init__(self, run: RunDirectory, rank: int) -> None:
        self._run = run
        self._rank = rank
        # Parents are not created: a missing run folder (unmounted disk) must stay missing.
        for folder in (run.shards, run.shard(rank)):
            folder.mkdir(exist_ok=True)
        sync_folder(run.shards)
        sync_folder(run.root)

    def commit(self, segment: Segment) -> int:
        """Write a segment atomically and flush it to disk; return the file's size in bytes.

        Raises
        ------
        ValueError
            If the segment is invalid; see `encode_segment`.
        OSError
            If the file cannot be written. Earlier segments are unchanged.
        """
        return commit_segment(self._run.segment(self._rank, segment.unit), segment)


class SegmentWriter:
    """Commits segments in a thread, in the order of `put`.

    After the first error no further segment is committed, and every `put` and `close` raises this
    error. The end of a ``with`` block calls `close`; if the block raised an exception, pending
    segments are still committed.

    Parameters
    ----------
    shard : ShardWriter
        Writer of the segments.
    in_flight : int
        Maximum number of pending segments, which are kept in memory.
    """

    def __init__(self, shard: ShardWriter, in_flight: int = 1) -> None:
        self._shard = shard
        self._in_flight = in_flight
        # The thread ends when this object is deleted, even without `close`.
        self._thread = ThreadPoolExecutor(1, "segment-writer")
        self._pending: deque[Future[None]] = deque()
        self._error: BaseException | None = None

    def put(self, segment: Segment, committed: Callable[[], None] | None = None) -> None:
        """Wait until fewer than `in_flight` segments are pending, then queue a segment.

        Parameters
        ----------
        segment : Segment
            The segment; its arrays must not change afterwards.
        committed : callable, optional
            Called in the writer's thread after the commit. An exception of this function has the
            same effect as a failed write.

        Raises
        ------
        ValueError, OSError
            The error of an earlier segment, as for `ShardWriter.commit`. The new segment is not
            committed.
        """
        self._settle(self._in_flight - 1)
        self._pending.append(self._thread.submit(self._commit, segment, committed))

    def flush(self) -> None:
        """Wait until all segments are committed.

        Raises
        ------
        ValueError, OSError
            The error of a pending segment, as for `ShardWriter.commit`.
        """
        self._settle(0)

    def close(self) -> None:
        """Wait until all segments are committed, and end the writer's thread.

        Raises
        ------
        ValueError, OSError
            The error of a pending segment, as for `ShardWriter.commit`.
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
            error.add_note(f"in addition, a segment could not be committed: {self._error}")

    def _settle(self, allowed: int) -> None:
        """Wait until at most `allowed` segments are pending; raise the first commit error."""
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
        except BaseException as error:  # noqa: BLE001 - the next put raises it
            self._error = error

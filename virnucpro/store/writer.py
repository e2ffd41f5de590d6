"""Writing of segments into a rank's shard, in a thread while the next unit is computed."""

from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from types import TracebackType
from typing import Self

from virnucpro.durable import sync_folder
from virnucpro.run_dir import RunDirectory
from virnucpro.store.segment import Segment, commit_segment

__all__ = ["SegmentWriter", "ShardWriter"]


class ShardWriter:
    """Commits segments into the shard of one rank.

    Two writers of one rank are harmless: a unit computed twice has the same numbers, up to
    rounding, and a rename replaces a complete file by another.

    Raises
    ------
    OSError
        If the shard's folder cannot be created, such as after the run's folder was deleted.
    """

    def __init__(self, run: RunDirectory, rank: int) -> None:
        self._run = run
        self._rank = rank
        # Without parents: a run folder that vanished (unmounted disk) must not be created again.
        for folder in (run.shards, run.shard(rank)):
            folder.mkdir(exist_ok=True)
        sync_folder(run.shards)
        sync_folder(run.root)

    def commit(self, segment: Segment) -> int:
        """Write a segment durably; return the file's size in bytes.

        Raises
        ------
        ValueError
            If the segment breaks a rule of `Segment`.
        OSError
            If the file cannot be written; earlier segments are untouched.
        """
        return commit_segment(self._run.segment(self._rank, segment.unit), segment)


class SegmentWriter:
    """Commits segments in a thread, in the order of `put`.

    After an error no segment is committed any more, and every `put` and `close` raises the error.
    As a context manager it closes itself; after an exception in the block it still commits the
    pending segments.

    Parameters
    ----------
    shard : ShardWriter
        Writer of the segments.
    in_flight : int
        Maximum number of pending segments; they are kept in memory.
    """

    def __init__(self, shard: ShardWriter, in_flight: int = 1) -> None:
        self._shard = shard
        self._in_flight = in_flight
        # The thread ends with the writer, even without `close`.
        self._thread = ThreadPoolExecutor(1, "segment-writer")
        self._pending: deque[Future[None]] = deque()
        self._error: BaseException | None = None

    def put(self, segment: Segment, committed: Callable[[], None] | None = None) -> None:
        """Queue a segment, as soon as fewer than `in_flight` are pending.

        Parameters
        ----------
        segment : Segment
            Its arrays must not change afterwards.
        committed : callable, optional
            Called in the writer's thread after the commit. Its errors stop the writing as errors
            of the disk do.

        Raises
        ------
        ValueError, OSError
            Of an earlier segment, as `ShardWriter.commit`; this one is not committed.
        """
        self._settle(self._in_flight - 1)
        self._pending.append(self._thread.submit(self._commit, segment, committed))

    def close(self) -> None:
        """Wait until all segments are committed, and end the thread.

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
            error.add_note(f"a segment could not be committed either: {self._error}")

    def _settle(self, allowed: int) -> None:
        """Wait until at most `allowed` segments are pending; raise an error of the thread."""
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

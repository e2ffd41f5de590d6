"""Write segments into the shard of a rank, in a thread while the rank computes the next unit."""

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
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
        for folder in dict.fromkeys((run.shards, run.shards.parent, run.machine, run.root)):
            sync_folder(folder)

    def commit(self, segment: Segment) -> None:
        """Write a segment atomically and flush it to disk.

        Raises
        ------
        ValueError
            If the segment is invalid; see `encode_segment`.
        OSError
            If the file cannot be written. Earlier segments are unchanged.
        """
        commit_segment(self._run.segment(self._rank, segment.unit), segment)


class SegmentWriter:
    """Commits segments in a thread, in the order of `put`; at most one is pending.

    After the first error no further segment is committed, and every `put` and `close` raises this
    error. The end of a ``with`` block calls `close`; if the block raised an exception, the pending
    segment is still committed.

    Parameters
    ----------
    shard : ShardWriter
        Writer of the segments.
    """

    def __init__(self, shard: ShardWriter) -> None:
        self._shard = shard
        # The thread ends when this object is deleted, even without `close`.
        self._thread = ThreadPoolExecutor(1, "segment-writer")
        self._pending: Future[None] = Future()
        self._pending.set_result(None)

    def put(self, segment: Segment, committed: Callable[[], None] | None = None) -> None:
        """Wait until the pending segment is committed, then queue a segment.

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
        self.flush()
        self._pending = self._thread.submit(self._commit, segment, committed)

    def flush(self) -> None:
        """Wait until all segments are committed.

        Raises
        ------
        ValueError, OSError
            The error of an earlier segment, as for `ShardWriter.commit`.
        """
        self._pending.result()

    def close(self) -> None:
        """Wait until all segments are committed, and end the writer's thread; errors as `flush`."""
        self._thread.shutdown()
        self.flush()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        if error is None:
            self.close()
            return
        self._thread.shutdown()
        failed = self._pending.exception()
        if failed is not None and failed is not error:
            error.add_note(f"in addition, a segment could not be committed: {failed}")

    def _commit(self, segment: Segment, committed: Callable[[], None] | None) -> None:
        self._shard.commit(segment)
        if committed is not None:
            committed()

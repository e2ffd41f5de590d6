"""The folder of segments that one rank writes."""

from virnucpro.durable import sync_folder
from virnucpro.run_dir import RunDirectory
from virnucpro.store.segment import Segment, commit_segment

__all__ = ["ShardWriter"]


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

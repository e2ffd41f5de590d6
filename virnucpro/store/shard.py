"""All that one rank writes."""

from virnucpro.durable import sync_folder
from virnucpro.run_dir import RunDirectory
from virnucpro.store.segment import Segment, commit_segment

__all__ = ["ShardWriter"]


class ShardWriter:
    """Commits segments into the shard of one rank.

    Two writers of one rank harm nothing: a unit done twice gives the same numbers, to rounding, and
    a rename puts one whole file in the place of another.

    Raises
    ------
    OSError
        When the shard's folder cannot be made, as when the run's folder is gone.
    """

    def __init__(self, run: RunDirectory, rank: int) -> None:
        self._run = run
        self._rank = rank
        # Without parents: a run folder that vanished (an unmounted disk) is not made anew.
        for folder in (run.shards, run.shard(rank)):
            folder.mkdir(exist_ok=True)
        sync_folder(run.shards)
        sync_folder(run.root)

    def commit(self, segment: Segment) -> int:
        """Write a segment so that it lasts, whatever happens afterwards.

        Returns
        -------
        int
            The file's size in bytes.

        Raises
        ------
        ValueError
            When the segment breaks a rule of `Segment`.
        OSError
            When the file cannot be written; earlier segments are untouched.
        """
        return commit_segment(self._run.segment(self._rank, segment.unit), segment)

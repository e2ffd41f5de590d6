"""The target of a rank's process: its part of the plan, unit by unit, into its shard.

Light to import: whatever reads the device mask is imported inside, after the mask is set.
"""

import json
import time
from typing import Protocol

from virnucpro.pipeline.poison import Place, Suspicion
from virnucpro.pipeline.rank_task import RankTask
from virnucpro.sequences.index import SequenceIndex
from virnucpro.sequences.partition import deal, unit_bounds

__all__ = ["RankChannel", "run_rank"]


class RankChannel(Protocol):
    """What a rank may say to its coordinator."""

    def put(self, payload: object) -> None:
        """Send a result."""

    def progress(self, done: int, total: int) -> None:
        """Say how many rows are committed or encoded, of how many."""


def run_rank(rank: int, world_size: int, results: RankChannel, task: RankTask) -> None:
    """Embed, score and commit the units ``plan[rank::world_size]``.

    Puts one dict when done: ``{"rank", "units", "rows", "seconds": {stage: s}}``.

    Raises
    ------
    BundleError, IndexFormatError, OSError
        As the parts raise them; committed segments stay.
    """
    # The device mask must be set before torch is imported.
    try:
        from virnucpro.pipeline.embedding import RowEmbedder  # noqa: PLC0415
        from virnucpro.store.shard import ShardWriter  # noqa: PLC0415
    except ImportError as error:
        error.add_note(
            "either the installation is damaged, or there is too little address space to load it: "
            "torch needs about 2 GB (ulimit -v)"
        )
        raise

    started = time.perf_counter()
    index = SequenceIndex.open(task.run.index)
    bounds = unit_bounds(index.row_lengths, task.unit_rows, task.unit_positions)
    units = deal(json.loads(task.run.launch(task.launch).read_bytes())["units"], rank, world_size)
    total = int(sum(bounds[unit + 1] - bounds[unit] for unit in units))
    results.progress(0, total)
    embedder = RowEmbedder(task, index)
    writer = ShardWriter(task.run, rank)
    seconds = {"load": time.perf_counter() - started, "commit": 0.0}

    done = 0
    for unit in units:
        first, last = int(bounds[unit]), int(bounds[unit + 1])
        watch = _UnitWatch(results, done, total)
        segment = embedder.embed(unit, first, last, watch, Suspicion())
        started = time.perf_counter()
        writer.commit(segment)
        seconds["commit"] += time.perf_counter() - started
        done += last - first
        results.progress(done, total)
    results.put(
        {"rank": rank, "units": len(units), "rows": done, "seconds": seconds | embedder.seconds}
    )


class _UnitWatch:
    """Counts a unit's progress into the rank's."""

    def __init__(self, results: RankChannel, done: int, total: int) -> None:
        self._results = results
        self._done = done
        self._total = total

    def at(self, place: Place) -> None:
        """Hear what is tried next, of which nobody is told yet."""

    def through(self, rows: int) -> None:
        """Say how far the rank is."""
        self._results.progress(self._done + rows, self._total)

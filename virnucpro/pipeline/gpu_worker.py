"""The target of a rank's process: its share of the plan, unit by unit, into its shard.

Light to import: whatever reads the device mask is imported inside, after the mask is set.
"""

import os
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Protocol

from virnucpro.pipeline.poison import Place, Watch, suspicion_of
from virnucpro.pipeline.rank_task import RankTask, Share
from virnucpro.pipeline.story import step_log
from virnucpro.sequences.index import SequenceIndex
from virnucpro.sequences.partition import unit_bounds
from virnucpro.sequences.windows import IntArray

if TYPE_CHECKING:
    from virnucpro.pipeline.embedding import RowEmbedder
    from virnucpro.pipeline.models import Models

__all__ = ["RankChannel", "run_rank"]


class RankChannel(Protocol):
    """What a rank may say to its coordinator."""

    def put(self, payload: object) -> None:
        """Send a result."""

    def progress(self, done: int, total: int) -> None:
        """Say how many rows are committed or encoded, of how many."""

    def mark(self, place: tuple[int, ...]) -> None:
        """Say on which piece of work this rank begins."""


def run_rank(
    rank: int,
    world_size: int,
    results: RankChannel,
    task: RankTask,
    shares: Mapping[int, Share],
    models: "Models | None" = None,
) -> None:
    """Embed, score and commit the units of ``shares[rank]`` that have no valid segment yet.

    With `models` of the task that were loaded before, nothing is loaded.

    Puts ``{"rank", "device", "learnt": {budget: tokens}}`` whenever it learns how large a batch may
    be, and ``{"rank", "units", "rows", "seconds": {stage: s}}`` when done. A rank that is killed
    loses the unit that it computes and the one that is on its way to the disk.

    Raises
    ------
    BundleError, IndexFormatError, OSError
        As the parts raise them; committed segments stay.
    """
    # The device mask must be set before torch is imported.
    try:
        from virnucpro.encoders.placement import device_name  # noqa: PLC0415
        from virnucpro.pipeline.embedding import RowEmbedder  # noqa: PLC0415
        from virnucpro.store.coverage import valid_segment  # noqa: PLC0415
        from virnucpro.store.shard import ShardWriter  # noqa: PLC0415
        from virnucpro.store.writer import SegmentWriter  # noqa: PLC0415
    except ImportError as error:
        error.add_note(
            "either the installation is damaged, or there is too little address space to load it: "
            "torch needs about 2 GB (ulimit -v)"
        )
        raise

    started = time.perf_counter()
    share, log = shares[rank], step_log(task.run, rank, task.log_format)
    log.write(
        "started", f"rank {rank} of {world_size}: {len(share.units):,} units", pid=os.getpid()
    )
    index = SequenceIndex.open(task.run.index)
    bounds = unit_bounds(index.row_lengths, task.unit_rows, task.unit_positions)
    rows_of = {unit: int(bounds[unit + 1] - bounds[unit]) for unit in share.units}
    done = share.rows_before
    total = done + sum(rows_of.values())
    results.progress(done, total)
    device = device_name(task.torch_device)
    learnt = task.learnt.get(device, {})
    embedder = RowEmbedder(task, index, learnt, models)
    seconds = {"load": time.perf_counter() - started}
    log.write("loaded", f"rank {rank}: encoders loaded", seconds=seconds["load"])

    _try_first(embedder, share, bounds, _UnitWatch(results, done, total))
    computed = 0
    with SegmentWriter(ShardWriter(task.run, rank)) as writer:
        for unit in _suspects_last(share):
            if valid_segment(task.run, unit, bounds, task.fingerprint) is None:
                watch = _UnitWatch(results, done, total)
                suspicion = suspicion_of(share.findings, unit)
                first, last = int(bounds[unit]), int(bounds[unit + 1])
                segment = embedder.embed(unit, first, last, watch, suspicion)
                # Before the commit: who sees the last segment has heard that this rank is done.
                results.progress(done + rows_of[unit], total)
                writer.put(segment)
                log.write("computed", f"rank {rank}: unit {unit}", unit=unit, rows=last - first)
                computed += 1
                if embedder.learnt != learnt:
                    learnt = embedder.learnt
                    results.put({"rank": rank, "device": device, "learnt": learnt})
            done += rows_of[unit]
            results.progress(done, total)
    results.put(
        {
            "rank": rank,
            "units": computed,
            "rows": done - share.rows_before,
            "seconds": seconds | embedder.seconds,
        }
    )
    log.write("finished", f"rank {rank}: {computed:,} units computed", units=computed)


def _try_first(embedder: "RowEmbedder", share: Share, bounds: IntArray, watch: Watch) -> None:
    """Do what a rank died of after other work, alone and before all of it."""
    for place, _ in share.findings.trials:
        if place.task in share.units:
            first, last = int(bounds[place.task]), int(bounds[place.task + 1])
            suspicion = suspicion_of(share.findings, place.task)
            embedder.try_alone(Place(*place), first, last, watch, suspicion)


def _suspects_last(share: Share) -> list[int]:
    """Order units so that those in which a rank has died hold up no other."""
    return sorted(share.units, key=lambda unit: bool(share.findings.of(unit)))


class _UnitWatch:
    """Counts a unit's progress into the rank's."""

    def __init__(self, results: RankChannel, done: int, total: int) -> None:
        self._results = results
        self._done = done
        self._total = total

    def at(self, place: Place) -> None:
        """Say what is tried next: should the process die, it died there."""
        self._results.mark(place)

    def through(self, rows: int) -> None:
        """Say how far the rank is."""
        self._results.progress(self._done + rows, self._total)

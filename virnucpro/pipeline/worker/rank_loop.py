"""What a rank does in one attempt: the open units of its share, one after the other."""

import os
import time
from collections.abc import Generator
from concurrent.futures import Future
from contextlib import closing
from dataclasses import asdict
from functools import partial
from itertools import accumulate

from virnucpro.encoders.memory.placement import device_name
from virnucpro.pipeline.run.coordinator_log import step_log
from virnucpro.pipeline.worker.models import Models
from virnucpro.pipeline.worker.poison_isolation import UnitSpan, suspicion_of
from virnucpro.pipeline.worker.prefetch import prefetch_one
from virnucpro.pipeline.worker.rank_task import RankChannel, RankTask, Share
from virnucpro.pipeline.worker.row_embedder import RowEmbedder
from virnucpro.pipeline.worker.unit_tokens import UnitTokens
from virnucpro.sequences.index import SequenceIndex
from virnucpro.sequences.partition import unit_bounds
from virnucpro.store.coverage import valid_segment
from virnucpro.store.shard import ShardWriter
from virnucpro.store.writer import SegmentWriter

__all__ = ["RankLoop"]


class RankLoop:
    """Computes and commits the units of a share that have no valid segment yet.

    Of units in which nothing has died, the next one's rows become tokens in a thread while the
    current one is computed. Where something has died, one thing is done after the other, so that it
    is known what a process dies of.

    Parameters
    ----------
    rank, world_size
        Of the process.
    results
        Where the rank is heard.
    task, share
        What all ranks are told, and what this one is to do.
    models
        Loaded before; else they are loaded here.
    """

    def __init__(
        self,
        rank: int,
        world_size: int,
        results: RankChannel,
        task: RankTask,
        share: Share,
        models: Models | None = None,
    ) -> None:
        started = time.perf_counter()
        self._rank, self._results, self._task, self._share = rank, results, task, share
        self._log = step_log(task.run, rank, task.log_format)
        self._log.write(
            "started", f"rank {rank} of {world_size}: {len(share.units):,} units", pid=os.getpid()
        )
        index = SequenceIndex.open(task.run.index)
        self._bounds = unit_bounds(index.row_lengths, task.unit_rows, task.unit_positions)
        # Units in which a rank has died hold up no other.
        self._units = sorted(share.units, key=lambda unit: bool(share.findings.of(unit)))
        sizes = [len(self._rows(unit)) for unit in self._units]
        *before, self._total = accumulate(sizes, initial=share.rows_before)
        self._rows_before = dict(zip(self._units, before, strict=True))
        results.progress(share.rows_before, self._total)
        self._device = device_name(task.torch_device)
        self._learnt = dict(task.learnt.get(self._device, {}))
        self._embedder = RowEmbedder(task, index, self._learnt, models)
        self._seconds = {"load": time.perf_counter() - started}
        self._log.write("loaded", f"rank {rank}: encoders loaded", seconds=self._seconds["load"])

    def run(self) -> None:
        """Do all of it, and report.

        Raises
        ------
        BundleError, IndexFormatError, OSError
            As the parts raise them; committed segments stay.
        """
        self._try_first()
        computed = 0
        with (
            SegmentWriter(ShardWriter(self._task.run, self._rank)) as writer,
            closing(self._fed()) as units,
        ):
            for unit, fed in units:
                self._compute(unit, fed, writer)
                computed += 1
        self._results.progress(self._total, self._total)
        filling = self._embedder.filling
        self._results.put(
            {
                "rank": self._rank,
                "units": computed,
                "rows": self._total - self._share.rows_before,
                "seconds": self._seconds | self._embedder.seconds,
                "again": dict(self._embedder.again),
                "filling": asdict(filling),
            }
        )
        self._log.write(
            "finished",
            f"rank {self._rank}: {computed:,} units computed in {filling.batches:,} batches of "
            f"{filling.tokens:,} tokens, {filling.unused:.1%} of their room unused",
            units=computed,
            batches=filling.batches,
            tokens=filling.tokens,
            unused=round(filling.unused, 4),
        )

    def _try_first(self) -> None:
        """Do what a rank died of after other work, alone and before all of it."""
        for place, _ in self._share.findings.trials:
            if place.task in self._share.units:
                rows, watch = self._rows(place.task), self._watch(self._units[0])
                suspicion = suspicion_of(self._share.findings, place.task)
                self._embedder.try_alone(UnitSpan(*place), rows.start, rows.stop, watch, suspicion)

    def _fed(self) -> Generator[tuple[int, Future[list[UnitTokens]] | None]]:
        """Give the units to compute, with their tokens under way where they may be."""
        open_units = (unit for unit in self._units if not self._is_done(unit))
        if self._share.findings:
            for unit in open_units:
                yield unit, None
        else:
            yield from prefetch_one(open_units, self._feed)

    def _is_done(self, unit: int) -> bool:
        task = self._task
        return valid_segment(task.run, unit, self._bounds, task.fingerprint) is not None

    def _feed(self, unit: int) -> list[UnitTokens]:
        rows = self._rows(unit)
        return self._embedder.feed(unit, rows.start, rows.stop)

    def _compute(
        self, unit: int, fed: Future[list[UnitTokens]] | None, writer: SegmentWriter
    ) -> None:
        rows, suspicion = self._rows(unit), suspicion_of(self._share.findings, unit)
        again = self._embedder.again.copy()
        try:
            segment = self._embedder.embed(
                unit, rows.start, rows.stop, self._watch(unit), suspicion, fed
            )
        except MemoryError:
            self._tell_learnt()  # who starts again must know what has fitted
            raise
        for precision, count in (self._embedder.again - again).items():
            text = f"rank {self._rank}: unit {unit}: {count:,} rows not finite in their batch"
            facts = {"unit": unit, "rows": count, "precision": precision}
            self._log.write("again", f"{text}, computed again alone at {precision}", **facts)
        # Before the commit: who sees the last segment has heard that this rank is done.
        self._results.progress(self._rows_before[unit] + len(rows), self._total)
        line = f"rank {self._rank}: unit {unit}"
        writer.put(segment, partial(self._log.write, "committed", line, unit=unit, rows=len(rows)))
        self._tell_learnt()

    def _tell_learnt(self) -> None:
        if self._embedder.learnt != self._learnt:
            self._learnt = self._embedder.learnt
            self._results.put({"rank": self._rank, "device": self._device, "learnt": self._learnt})

    def _rows(self, unit: int) -> range:
        return range(int(self._bounds[unit]), int(self._bounds[unit + 1]))

    def _watch(self, unit: int) -> "_UnitWatch":
        return _UnitWatch(self._results, self._rows_before[unit], self._total)


class _UnitWatch:
    """Counts a unit's progress into the rank's."""

    def __init__(self, results: RankChannel, done: int, total: int) -> None:
        self._results = results
        self._done = done
        self._total = total

    def at(self, place: UnitSpan) -> None:
        """Say what is tried next: should the process die, it died there."""
        self._results.mark(place)

    def through(self, rows: int) -> None:
        """Say how far the rank is."""
        self._results.progress(self._done + rows, self._total)

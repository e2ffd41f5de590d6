"""Main loop of a rank process: compute and commit the assigned units one by one."""

import os
import time
from collections.abc import Generator
from concurrent.futures import Future
from contextlib import closing
from dataclasses import asdict
from functools import partial
from itertools import accumulate

from virnucpro.encoders.device import device_name
from virnucpro.pipeline.run.coordinator_files import step_log
from virnucpro.pipeline.worker.encoder_pass import UnitTokens, prefetch_one
from virnucpro.pipeline.worker.poison_isolation import UnitSpan, suspicion_of
from virnucpro.pipeline.worker.rank_encoder import Models
from virnucpro.pipeline.worker.rank_main import RankChannel, RankTask, Share, UnitProgress
from virnucpro.pipeline.worker.row_embedder import RowEmbedder
from virnucpro.sequences.index import SequenceIndex
from virnucpro.sequences.partition import unit_bounds
from virnucpro.store.coverage import valid_segment
from virnucpro.store.writer import SegmentWriter, ShardWriter

__all__ = ["RankLoop"]


class RankLoop:
    """Main loop of a rank: computes and commits assigned units without a valid segment.

    A second thread tokenises the rows of the next unit while the current unit is computed. After a
    rank of this launch has died at a known row, the second thread is not used. The cause of another
    death is then one of the rows that the process reported last.

    Parameters
    ----------
    rank, world_size
        Number of this process, and number of all processes.
    results
        Channel for messages to the coordinator.
    task, share
        Parameters that are equal for all ranks, and the units of this rank.
    models
        Loaded models; None to load the models here.
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
        # Units in which a rank has died come last.
        self._units = sorted(share.units, key=lambda unit: bool(share.findings.of_task(unit)))
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
        """Compute all units, and send a report with statistics to the coordinator.

        Raises
        ------
        BundleError, IndexFormatError, OSError
            If a file is missing or damaged, or a segment cannot be written. Committed segments
            are kept.
        """
        self._try_first()
        computed = 0
        with (
            SegmentWriter(ShardWriter(self._task.run, self._rank)) as writer,
            closing(self._prefetched()) as units,
        ):
            for unit, prefetched in units:
                self._compute(unit, prefetched, writer)
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
            f"rank {self._rank}: {computed:,} units computed in {filling.batches:,} batches with "
            f"{filling.tokens:,} tokens in total, {filling.unused:.1%} of the token budgets unused",
            units=computed,
            batches=filling.batches,
            tokens=filling.tokens,
            unused=round(filling.unused, 4),
        )

    def _try_first(self) -> None:
        """Encode or tokenise again each single row at which a rank died, before all units.

        If the process dies again at a row, this row is the cause, and not a row of an earlier
        batch.
        """
        for span, _ in self._share.findings.trials:
            if span.task in self._share.units:
                watch = self._watch(self._units[0])
                suspicion = suspicion_of(self._share.findings, span.task)
                self._embedder.try_alone(UnitSpan(*span), self._rows(span.task), watch, suspicion)

    def _prefetched(self) -> Generator[tuple[int, Future[list[UnitTokens]] | None]]:
        """Yield the number and the tokens of each assigned unit without a valid segment.

        The tokens are the future result of `RowEmbedder.tokenise`, prefetched in another thread. If
        a rank of this launch has died at a known row before this attempt, the tokens are None for
        all units: the caller must then tokenise the rows itself, without a second thread.
        """
        task = self._task
        open_units = (
            unit
            for unit in self._units
            if valid_segment(task.run, unit, self._bounds, task.fingerprint) is None
        )
        if self._share.findings:
            yield from ((unit, None) for unit in open_units)
        else:
            yield from prefetch_one(
                open_units, lambda unit: self._embedder.tokenise(unit, self._rows(unit))
            )

    def _compute(
        self, unit: int, prefetched: Future[list[UnitTokens]] | None, writer: SegmentWriter
    ) -> None:
        rows, suspicion = self._rows(unit), suspicion_of(self._share.findings, unit)
        again = self._embedder.again.copy()
        try:
            segment = self._embedder.embed(unit, rows, self._watch(unit), suspicion, prefetched)
        except MemoryError:
            self._send_learnt()  # the restarted rank needs the longest length that fitted
            raise
        for precision, count in (self._embedder.again - again).items():
            text = f"rank {self._rank}: unit {unit}: {count:,} rows were not finite in their batch"
            facts = {"unit": unit, "rows": count, "precision": precision}
            self._log.write("again", f"{text}; recomputed one by one at {precision}", **facts)
        # Sent before the commit, so that the progress is 100 % as soon as the last segment exists.
        self._results.progress(self._rows_before[unit] + len(rows), self._total)
        line = f"rank {self._rank}: unit {unit}"
        writer.put(segment, partial(self._log.write, "committed", line, unit=unit, rows=len(rows)))
        self._send_learnt()

    def _send_learnt(self) -> None:
        if self._embedder.learnt != self._learnt:
            self._learnt = self._embedder.learnt
            self._results.put({"rank": self._rank, "device": self._device, "learnt": self._learnt})

    def _rows(self, unit: int) -> range:
        return range(int(self._bounds[unit]), int(self._bounds[unit + 1]))

    def _watch(self, unit: int) -> UnitProgress:
        return UnitProgress(self._results, self._rows_before[unit], self._total)

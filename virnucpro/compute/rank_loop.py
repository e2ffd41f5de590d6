"""Main loop of a rank process: take, compute and commit units one by one."""

import time
from collections.abc import Callable, Generator
from concurrent.futures import Future
from contextlib import closing
from dataclasses import asdict
from functools import partial

from virnucpro.compute.encoder_pass import UnitTokens, taken_ahead
from virnucpro.compute.rank_encoder import Models
from virnucpro.compute.rank_main import Assignment, RankChannel, RankTask, Share, UnitProgress
from virnucpro.compute.row_embedder import RowEmbedder
from virnucpro.encoders.device import torch_threads
from virnucpro.runtime.events import EventLog
from virnucpro.sequences.index import SequenceIndex
from virnucpro.sequences.partition import unit_bounds
from virnucpro.store.coverage import valid_segment
from virnucpro.store.writer import SegmentWriter, ShardWriter


class RankLoop:
    """Main loop of a rank: takes units, computes and commits those without a valid segment.

    A second thread takes the next unit and tokenises its rows while the current unit is computed.
    Ranks that start after a failure in this launch tokenise in the first thread, and all ranks
    units that a rank held when it died. The cause of another death is then one of the rows that the
    process reported last.

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
        self._log = EventLog(task.run.log(rank))
        self._log.write(f"rank {rank} of {world_size}: {len(share.units):,} units")
        index = SequenceIndex.open(task.run.index)
        self._bounds = unit_bounds(index.row_lengths, task.unit_rows, task.unit_positions)
        self._done = share.rows_before
        self._total = self._done + sum(len(self._rows(unit)) for unit in share.units)
        results.progress(self._done, self._total)
        self._computed = 0
        self._embedder = RowEmbedder(task, index, models)
        self._seconds = {"load": time.perf_counter() - started}
        self._log.write(f"rank {rank}: encoders loaded")

    def run(self) -> None:
        """Compute all units, and send a report with statistics to the coordinator.

        Raises
        ------
        BundleError, IndexFormatError, OSError
            If a file is missing or damaged, or a segment cannot be written. Committed segments
            are kept.
        """
        with (
            torch_threads(self._task.threads),
            SegmentWriter(ShardWriter(self._task.run, self._rank)) as writer,
            closing(self._assignments(writer)) as assignments,
        ):
            self._try_first()
            for assignment, prefetched in assignments:
                if self._is_committed(assignment):
                    self._done += len(self._rows(assignment.unit))
                    self._report_committed(assignment.unit)
                    continue
                self._compute(assignment, prefetched, writer)
                self._computed += 1
        self._results.progress(self._done, self._done)
        filling = self._embedder.filling
        self._results.put(
            {
                "rank": self._rank,
                "units": self._computed,
                "seconds": self._seconds | self._embedder.seconds,
                "recomputed": self._embedder.recomputed,
                "filling": asdict(filling),
            }
        )
        self._log.write(
            f"rank {self._rank}: {self._computed:,} units computed in {filling.batches:,} batches "
            f"with {filling.tokens:,} tokens, {filling.unused:.1%} of the token budgets unused"
        )

    def _try_first(self) -> None:
        """Encode or tokenise again each single row at which this rank died, before all units.

        If the process dies again at a row, this row is the cause, and not a row of an earlier
        batch.
        """
        for span, rank in self._share.findings.trials:
            if rank == self._rank:
                watch = UnitProgress(self._results, self._done, self._total)
                found = self._share.findings.of_task(span.task)
                self._embedder.try_alone(span, self._rows(span.task), watch, found)

    def _assignments(
        self, writer: SegmentWriter
    ) -> Generator[tuple[Assignment, Future[list[UnitTokens]] | None]]:
        """Yield each unit to compute, and its tokens; None if the caller must tokenise the rows.

        The tokens are the future result of `RowEmbedder.tokenise` in another thread.
        """
        wait = partial(self._wait_for_unit, writer)
        yield from taken_ahead(iter(self._results.ask, None), self._preparation, wait)

    def _preparation(self, assignment: Assignment) -> Callable[[], list[UnitTokens]] | None:
        """Return the function that tokenises a unit in advance; None if that is not allowed."""
        unit, found, prefetch = assignment
        prefetch = prefetch and self._share.prefetch and not found
        if not prefetch or self._is_committed(assignment):
            return None
        return partial(self._embedder.tokenise, unit, self._rows(unit))

    def _is_committed(self, assignment: Assignment) -> bool:
        """Return whether a rank of this process has committed a unit."""
        task = self._task
        found = valid_segment(task.run, assignment.unit, self._bounds, task.fingerprint)
        return found is not None

    def _wait_for_unit(self, writer: SegmentWriter) -> None:
        """Commit all, and report that this rank waits: then no deadline applies to it."""
        writer.flush()
        self._results.progress(self._done, self._done)
        self._results.mark(())

    def _compute(
        self,
        assignment: Assignment,
        prefetched: Future[list[UnitTokens]] | None,
        writer: SegmentWriter,
    ) -> None:
        unit, found, _ = assignment
        rows = self._rows(unit)
        watch = UnitProgress(self._results, self._done, max(self._total, self._done + len(rows)))
        before = self._embedder.recomputed
        segment = self._embedder.embed(unit, rows, watch, found, prefetched)
        if count := self._embedder.recomputed - before:
            text = f"rank {self._rank}: unit {unit}: {count:,} rows were not finite in their batch"
            self._log.write(f"{text}; recomputed one by one at fp32")
        self._done += len(rows)
        # Sent before the commit, so that the progress is 100 % as soon as the last segment exists.
        self._results.progress(self._done, max(self._done, self._total))
        writer.put(segment, partial(self._report_committed, unit, computed=True))

    def _report_committed(self, unit: int, *, computed: bool = False) -> None:
        """Report a committed unit; log the unit if this rank has `computed` it."""
        n_rows = len(self._rows(unit))
        if computed:
            self._log.write(f"rank {self._rank}: unit {unit}")
        self._results.put({"rank": self._rank, "committed": unit, "rows": n_rows})

    def _rows(self, unit: int) -> range:
        return range(int(self._bounds[unit]), int(self._bounds[unit + 1]))

"""Compute a job in this process and in memory: without a run folder, locks and segment files."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np

from virnucpro.arrays import IntArray, RealArray, joined_ranges
from virnucpro.classifier.call_options import CallOptions
from virnucpro.compute.rank_encoder import Models
from virnucpro.compute.rank_launch import rank_task
from virnucpro.compute.rank_main import UnitProgress
from virnucpro.compute.row_embedder import RowEmbedder
from virnucpro.encoders.device import torch_threads
from virnucpro.run.calls import call_run
from virnucpro.run.creation import new_manifest, warn_of_inputs
from virnucpro.run.execution import Execution
from virnucpro.run.job import Job
from virnucpro.run.manifest import write_manifest
from virnucpro.run.outputs import outcome_of, write_outputs
from virnucpro.run.reporter import Reporter
from virnucpro.run.run import Outcome, Run, put_index_in_place
from virnucpro.run_dir import RunDirectory
from virnucpro.runtime.devices import Device
from virnucpro.runtime.policy import Findings
from virnucpro.sequences.entries import Input
from virnucpro.sequences.index import SequenceIndex, index_in_memory
from virnucpro.store.coverage import coverage_of
from virnucpro.store.schema import RowState
from virnucpro.store.segment import Segment
from virnucpro.store.writer import ShardWriter
from virnucpro.tables.source import RunScores

_NOWHERE: Final = RunDirectory(Path("result.outdir"))
"""Paths of a run without a folder, as warnings name them; nothing is written there."""


class _Unwatched(UnitProgress):
    """Progress reports that are discarded."""

    def __init__(self) -> None:
        """Do nothing: there is no channel to a coordinator."""

    def report_next(self, span: tuple[int, ...]) -> None:
        """Ignore the rows computed next."""

    def report_encoded(self, rows: int) -> None:
        """Ignore the number of encoded rows."""


class RunVectors(NamedTuple):
    """Vectors of all items, as embeddings.h5 has them.

    Attributes
    ----------
    matrix
        float16 or float32 (n_items, D), NaN without a vector; with `offsets`, (tokens, D).
    status
        uint8 (n_items,) of `RowState`.
    views
        Dimensions of each encoder by its view, in the order in which they are joined.
    offsets
        int64 (n_items + 1,) with one vector per token, otherwise None.
    """

    matrix: RealArray
    status: np.ndarray[Any, np.dtype[np.uint8]]
    views: Mapping[str, int]
    offsets: IntArray | None


@dataclass(frozen=True, eq=False)
class MemoryRun:
    """A computed run without a folder.

    Attributes
    ----------
    run, segments, scores
        Manifest and index; results of all units; what the tables are made from.
    outcome
        Counts of the results; no file is written.
    """

    run: Run
    segments: Sequence[Segment]
    scores: RunScores
    outcome: Outcome

    @property
    def vectors(self) -> RunVectors:
        """Return the vectors of all items of a run that stores vectors."""
        rows = np.asarray(self.run.index.item_row)
        status = self.scores.coverage.row_state[rows]
        views = self.run.manifest.views
        dtype = f"float{self.run.manifest.parameters['embeddings'][2:]}"
        empty = np.empty((0, sum(views.values())), dtype)
        stored = [part.embeddings for part in self.segments if part.embeddings is not None]
        vectors = np.concatenate([empty, *stored])
        per_row = [part.counts for part in self.segments if part.counts is not None]
        if not per_row:
            matrix = vectors[rows]
            matrix[(status != RowState.DONE) | self.run.index.without_vector(rows)] = np.nan
            return RunVectors(matrix, status, views, None)
        counts = np.concatenate(per_row)
        first, own = np.cumsum(counts) - counts, counts[rows]
        offsets = np.concatenate(([0], np.cumsum(own)))
        places = joined_ranges(first[rows], own)
        return RunVectors(vectors[places], status, views, offsets)

    def rescored(self, calls: CallOptions) -> "MemoryRun":
        """Return the run with the calls of another rule."""
        rule = asdict(calls.after(self.run.manifest.calls))
        run = replace(self.run, manifest=replace(self.run.manifest, calls=rule))
        scores = call_run(run, self.scores.coverage)
        outcome = outcome_of(run, scores, Reporter())
        outcome = replace(outcome, recomputed=self.outcome.recomputed)
        return MemoryRun(run, self.segments, scores, outcome)

    def write(self, folder: Path) -> None:
        """Write the run folder that a computation with a folder would have written.

        Raises
        ------
        OSError
            If a file cannot be written.
        """
        paths = RunDirectory(folder)
        folder.mkdir()
        paths.machine.mkdir()
        self.run.index.write(paths.next_index)
        write_manifest(paths, self.run.manifest)
        put_index_in_place(paths)
        shard = ShardWriter(paths, 0)
        for segment in self.segments:
            shard.commit(segment)
        write_outputs(Run.open(paths), Reporter(), report=False)


def compute_in_memory(
    job: Job, inputs: Sequence[Input], models: Models, execution: Execution, reporter: Reporter
) -> MemoryRun:
    """Compute a job as `predict.run_in_process` does, with equal results, without a file.

    The memory needed is about 4 bytes per base and that of the stored vectors. Errors of a batch
    are raised.

    Parameters
    ----------
    job
        Its precision is not ``auto``; its inputs are ignored.
    inputs
        Paths or open streams.
    models
        Encoders and classifier of the job, loaded on the CPU.
    execution
        Only its number of threads is used.

    Raises
    ------
    InputError
        If an input cannot be read.
    """
    return compute_index(
        job, index_in_memory(inputs, job.index, job.rules), models, execution, reporter
    )


def compute_index(
    job: Job, index: SequenceIndex, models: Models, execution: Execution, reporter: Reporter
) -> MemoryRun:
    """Compute a job for an index in memory; the other parameters are those of `compute_in_memory`.

    Errors of a batch are raised.
    """
    run = Run.of(_NOWHERE, new_manifest(job, index, "cpu"), index)
    warn_of_inputs(run.manifest, index, reporter)
    task = rank_task(run, job, [Device("cpu")], execution)
    watch = _Unwatched()
    segments = []
    with torch_threads(task.threads):
        embedder = RowEmbedder(task, index, models=models)
        for unit, (first, last) in enumerate(zip(run.bounds, run.bounds[1:], strict=False)):
            segments.append(embedder.embed(unit, range(first, last), watch, Findings()))
    coverage = coverage_of(segments, run.bounds, run.manifest.fingerprint)
    scores = call_run(run, coverage)
    outcome = replace(outcome_of(run, scores, reporter), recomputed=embedder.recomputed)
    return MemoryRun(run, segments, scores, outcome)

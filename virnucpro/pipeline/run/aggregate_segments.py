"""One embeddings.h5 from segments that are not, or no longer, in their run's folder."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from virnucpro.errors import NotARunError, SegmentError, StoreError, UsageError
from virnucpro.pipeline.run.manifest import Manifest, read_manifest
from virnucpro.run_dir import RunDirectory
from virnucpro.sequences.index import SequenceIndex
from virnucpro.sequences.partition import unit_bounds
from virnucpro.store.aggregate import write_embeddings, write_loose_embeddings
from virnucpro.store.loose import LooseCoverage, RowNames, find_segments, survey_loose
from virnucpro.store.schema import RowState
from virnucpro.store.segment import read_segment

__all__ = ["LooseOutcome", "aggregate_segments"]


@dataclass(frozen=True, slots=True)
class LooseOutcome:
    """What became of some segments.

    Attributes
    ----------
    n_items
        Vectors in the file, those of gaps (NaN) included.
    gaps
        Rows without a segment, as ``(first, last + 1)``.
    rejected
        Why damaged segments were left out.
    notes
        Copies that differ by rounding, and which of them counts.
    rows_quarantined
        Rows without numbers, for good.
    indexed
        Whether the number of rows was known: without an index nobody can tell what is missing
        behind the last segment.
    """

    n_items: int
    gaps: tuple[tuple[int, int], ...]
    rejected: tuple[str, ...]
    notes: tuple[str, ...]
    rows_quarantined: int
    indexed: bool

    @property
    def partial(self) -> bool:
        """Something has no numbers, or nobody knows whether all is there."""
        return not self.indexed or bool(self.gaps or self.rejected or self.rows_quarantined)


def aggregate_segments(
    paths: Sequence[Path], output: Path, index_folder: Path | None = None
) -> LooseOutcome:
    """Write the vectors of segments into one file, whole or not at all, in bounded memory.

    Parameters
    ----------
    paths
        Segment files, shard folders, or folders of shards.
    output
        The file to write; an older one stays until the new one is whole.
    index_folder
        A run, or its index beside its run.json: an index alone does not tell whose segments are
        its own. With it the file holds all items in input order with their names, NaN where no
        segment holds them. Without it it holds the rows that there are, in ascending order, each
        named by its number.

    Raises
    ------
    UsageError
        When `output` is in no folder, is there and no regular file, is a segment, or a name that
        a run gives to something else than its embeddings.h5: before anything is read.
    InputError, StoreError
        When a path holds no segments; when files belong to different runs, copies of a unit differ
        by more than rounding, or rows are none of the index's: all by name.
    NotARunError, IndexFormatError
        When `index_folder` is neither a run nor the index of one, or is damaged.
    """
    segments = find_segments(paths)
    _refuse_output(output, segments)
    run = None if index_folder is None else _run_of(index_folder)
    _refuse_names_of_runs(output, run)
    if run is None:
        coverage = survey_loose(segments)
        index_of_rows = RowNames(coverage)
        write_embeddings(output, coverage, index_of_rows, _joined(coverage))
        return _outcome(coverage, index_of_rows.n_items, indexed=False)
    manifest, index = _opened(run)

    def accept(coverage: LooseCoverage) -> None:
        _refuse_another_run(coverage, run.root, manifest, index)

    coverage = write_loose_embeddings(
        output, segments, index, index.n_rows, views=manifest.views, accept=accept
    )
    return _outcome(coverage, index.n_items, indexed=True)


def _refuse_output(output: Path, segments: Sequence[Path]) -> None:
    """Find out before hours of reading that the file cannot be written, or must not be."""
    if output.is_symlink():
        raise UsageError(f"{output} is a symbolic link; name the file itself")
    if output.is_dir():
        raise UsageError(f"{output} is a folder; name a file, as in {output / 'embeddings.h5'}")
    if not output.parent.is_dir():
        raise UsageError(f"{output.parent} is no folder; make it, or choose another output file")
    if not output.exists():
        return
    if not output.is_file():
        raise UsageError(f"{output} is there and no regular file; choose another output file")
    if any(output.samefile(path) for path in segments):
        raise UsageError(f"{output} is one of the segments to read; choose another output file")


def _refuse_names_of_runs(output: Path, named: RunDirectory | None) -> None:
    around = [RunDirectory(folder) for folder in output.absolute().resolve().parents]
    runs = [run for run in around if run.run_json.exists()] + ([named] if named else [])
    for run in runs:
        own = output.name == run.embeddings.name and output.parent.samefile(run.root)
        if run.owns(output) and not own:
            raise UsageError(
                f"{output} is the place of something else in the run {run.root}; "
                f"choose another output file, as {run.embeddings}"
            )


def _run_of(folder: Path) -> RunDirectory:
    """Find the run of which the folder itself, or its index, was named."""
    run = RunDirectory(folder)
    if run.run_json.exists():
        return run
    above = {folder.absolute().parent, folder.resolve().parent} if folder.is_dir() else ()
    for run in map(RunDirectory, above):
        if run.run_json.exists() and run.index.is_dir() and run.index.samefile(folder):
            return run
    raise NotARunError(
        f"{folder} is no run, and no index beside its run's run.json, without which nobody knows "
        "whose segments fit it; name the run's folder"
    )


def _opened(run: RunDirectory) -> tuple[Manifest, SequenceIndex]:
    manifest, index = read_manifest(run), SequenceIndex.open(run.index)
    index.verify()
    if index.fingerprint != manifest.index_fingerprint:
        raise StoreError(
            f"{run.index} is another run's index (fingerprint {index.fingerprint}, "
            f"{run.run_json} has {manifest.index_fingerprint}); put the run's own there"
        )
    return manifest, index


def _refuse_another_run(
    coverage: LooseCoverage, folder: Path, manifest: Manifest, index: SequenceIndex
) -> None:
    """Compare fingerprints, and the rows of every segment with those of the run's units."""
    first = next(iter(coverage.done.values()))
    if coverage.fingerprint != manifest.fingerprint:
        raise StoreError(
            f"{first} and the others belong to a run with fingerprint {coverage.fingerprint}, "
            f"{folder} has {manifest.fingerprint}; name the segments' own run"
        )
    units = unit_bounds(index.row_lengths, manifest.units["rows"], manifest.units["positions"])
    for edges, path in coverage.done.items():
        place = int(np.searchsorted(units, edges[0]))
        if not np.array_equal(units[place : place + 2], edges):
            raise StoreError(
                f"{path}: its rows {edges[0]:,} to {edges[1] - 1:,} are no unit of {folder}; "
                "leave it out"
            )


def _joined(coverage: LooseCoverage) -> Mapping[str, int]:
    """Tell the dimensions where no run tells the views: one, of unknown parts."""
    path = next(iter(coverage.done.values()))
    embeddings = read_segment(path, any_name=True).embeddings
    if embeddings is None:
        raise SegmentError(f"{path}: its run keeps no embeddings; there is nothing to aggregate")
    return {"joined": embeddings.shape[1]}


def _outcome(coverage: LooseCoverage, n_items: int, *, indexed: bool) -> LooseOutcome:
    return LooseOutcome(
        n_items=n_items,
        gaps=coverage.gaps,
        rejected=tuple(one.reason for one in coverage.rejected),
        notes=coverage.notes,
        rows_quarantined=int((coverage.row_state == RowState.QUARANTINED).sum()),
        indexed=indexed,
    )

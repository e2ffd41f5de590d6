"""One embeddings.h5 from segments outside of their run's folder."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from virnucpro.errors import NotARunError, StoreError, UsageError
from virnucpro.pipeline.run.manifest import Manifest, read_manifest
from virnucpro.pipeline.run.session import verified_index
from virnucpro.run_dir import RunDirectory
from virnucpro.store.aggregate import write_embeddings, write_loose_embeddings
from virnucpro.store.loose import LooseCoverage, RowNames, find_segments, survey_loose
from virnucpro.store.schema import RowState

__all__ = ["LooseOutcome", "aggregate_segments"]


@dataclass(frozen=True, slots=True)
class LooseOutcome:
    """Result of the aggregation.

    Attributes
    ----------
    coverage
        Rows of the segments.
    n_items
        Vectors in the file, including those of gaps (NaN).
    """

    coverage: LooseCoverage
    n_items: int

    @property
    def rows_quarantined(self) -> int:
        """Rows that have no vector and will not get one."""
        return int((self.coverage.row_state == RowState.QUARANTINED).sum())

    @property
    def partial(self) -> bool:
        """Whether a row has no vector, or the number of rows is unknown."""
        rejected, quarantined = self.coverage.rejected, self.rows_quarantined
        return not self.coverage.complete or bool(rejected or quarantined)


def aggregate_segments(
    paths: Sequence[Path], output: Path, index_folder: Path | None = None
) -> LooseOutcome:
    """Write the vectors of segments into one file, atomically and in bounded memory.

    Parameters
    ----------
    paths
        Segment files, shard folders, or folders of shards.
    output
        The file to write; it is replaced at the end.
    index_folder
        A run, or the index beside its run.json. With it the file holds all items in input order
        with their names, and NaN for rows without a segment. Without it the file holds the rows of
        the segments in ascending order, each named by its number.

    Raises
    ------
    UsageError
        If `output` cannot be written, is one of the segments, or is the name of another file of a
        run. Nothing is read then.
    InputError, StoreError
        If a path holds no segments, files belong to different runs, copies of a unit differ by
        more than rounding, or rows are not in the index. The error names the files.
    NotARunError, IndexFormatError
        If `index_folder` is neither a run nor its index, or is damaged.
    """
    segments = find_segments(paths)
    _refuse_output(output, segments)
    run = None if index_folder is None else _run_of(index_folder)
    _refuse_names_of_runs(output, run)
    if run is None:
        coverage = survey_loose(segments)
        index_of_rows = RowNames(coverage)
        write_embeddings(output, coverage, index_of_rows)
        return LooseOutcome(coverage, index_of_rows.n_items)
    manifest = read_manifest(run)
    index = verified_index(run.index, manifest)

    def accept(coverage: LooseCoverage) -> None:
        _refuse_another_run(coverage, run.root, manifest)

    coverage = write_loose_embeddings(
        output, segments, index, index.n_rows, views=manifest.views, accept=accept
    )
    return LooseOutcome(coverage, index.n_items)


def _refuse_output(output: Path, segments: Sequence[Path]) -> None:
    """Refuse an output that cannot be written, before segments are read for hours."""
    if output.is_symlink():
        problem = "is a symbolic link; name the file itself"
    elif output.is_dir():
        problem = f"is a folder; name a file, as in {output / 'embeddings.h5'}"
    elif not output.parent.is_dir():
        problem = "is in a folder that does not exist; create the folder"
    elif output.exists() and not output.is_file():
        problem = "is not a regular file; choose another output file"
    elif output.exists() and any(output.samefile(path) for path in segments):
        problem = "is one of the segments; choose another output file"
    else:
        return
    raise UsageError(f"{output} {problem}")


def _refuse_names_of_runs(output: Path, named: RunDirectory | None) -> None:
    around = [RunDirectory(folder) for folder in output.absolute().resolve().parents]
    runs = [run for run in around if run.run_json.exists()] + ([named] if named else [])
    for run in runs:
        own = output.name == run.embeddings.name and output.parent.samefile(run.root)
        if run.owns(output) and not own:
            raise UsageError(
                f"{output} is the name of another file of the run {run.root}; "
                f"choose another output file, such as {run.embeddings}"
            )


def _run_of(folder: Path) -> RunDirectory:
    """Return the run that the folder, or its parent, is."""
    places = (folder, folder.absolute().parent, folder.resolve().parent) if folder.is_dir() else ()
    for run in map(RunDirectory, places):
        named = run.root == folder or (run.index.is_dir() and run.index.samefile(folder))
        if named and run.run_json.exists():
            return run
    raise NotARunError(
        f"{folder} is neither a run nor the index beside a run.json; name the run's folder"
    )


def _refuse_another_run(coverage: LooseCoverage, folder: Path, manifest: Manifest) -> None:
    """Compare fingerprints; the same one means the same rows in each unit."""
    if coverage.fingerprint != manifest.fingerprint:
        first = next(iter(coverage.done.values()))
        raise StoreError(
            f"{first} and the others belong to a run with fingerprint {coverage.fingerprint}, "
            f"{folder} has {manifest.fingerprint}; name the segments' own run"
        )

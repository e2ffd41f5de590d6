"""Write one embeddings.h5 from segment files that may lie outside of their run's folder."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from virnucpro.errors import NotARunError, StoreError, UsageError
from virnucpro.pipeline.run.manifest import Manifest, read_manifest
from virnucpro.pipeline.run.session import verified_index
from virnucpro.run_dir import RunDirectory
from virnucpro.store.aggregate import write_embeddings, write_surveyed_embeddings
from virnucpro.store.loose import LooseCoverage, LooseSurvey, RowNames, find_segments, survey_loose
from virnucpro.store.schema import RowState

__all__ = ["LooseOutcome", "aggregate_segments"]


@dataclass(frozen=True, slots=True)
class LooseOutcome:
    """Result of `aggregate_segments`.

    Attributes
    ----------
    coverage
        State of each row, and the segment files in use.
    n_items
        Number of vectors in the file; rows without a segment have NaN vectors.
    """

    coverage: LooseCoverage
    n_items: int

    @property
    def rows_quarantined(self) -> int:
        """Return the number of quarantined rows (failed permanently, without a vector)."""
        return int((self.coverage.row_state == RowState.QUARANTINED).sum())

    @property
    def partial(self) -> bool:
        """Return True if a row has no vector, a file is damaged, or the row count is unknown."""
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
        The file to write. An existing file is replaced after all segments have been read.
    index_folder
        A run folder, or the index folder in it. With an index, the file contains all items in input
        order with their names, and NaN for rows without a segment. Without an index, the file
        contains the rows of the segments in ascending order; the name of a row is its number.

    Raises
    ------
    UsageError
        If `output` cannot be written, is one of the segments, or is a file of the run other than
        embeddings.h5. No segment has been read.
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

    survey = LooseSurvey(segments, index.n_rows)
    views, about = manifest.views, manifest.about_vectors
    coverage = write_surveyed_embeddings(
        output, survey, index, index.n_rows, views=views, about=about, accept=accept
    )
    return LooseOutcome(coverage, index.n_items)


def _refuse_output(output: Path, segments: Sequence[Path]) -> None:
    """Raise UsageError if the output cannot be written.

    The output is checked before the segments are read, because reading may take hours.
    """
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
    """Return the run for which `folder` is the run folder or the index folder.

    Raises
    ------
    NotARunError
        If there is no such run.
    """
    places = (folder, folder.absolute().parent, folder.resolve().parent) if folder.is_dir() else ()
    for run in map(RunDirectory, places):
        named = run.root == folder or (run.index.is_dir() and run.index.samefile(folder))
        if named and run.run_json.exists():
            return run
    raise NotARunError(
        f"{folder} is neither a run folder nor the index of a run; pass the folder of the run"
    )


def _refuse_another_run(coverage: LooseCoverage, folder: Path, manifest: Manifest) -> None:
    """Raise StoreError if the segments have another fingerprint than the run of `manifest`.

    Equal fingerprints guarantee that each unit has the same rows.
    """
    if coverage.fingerprint != manifest.fingerprint:
        first = next(iter(coverage.done.values()))
        raise StoreError(
            f"{first} and the other segments belong to a run with fingerprint "
            f"{coverage.fingerprint}, but {folder} has {manifest.fingerprint}; "
            "pass the folder of the run that wrote the segments"
        )

"""Write one embeddings.h5 from segment files that may lie outside of their run's folder."""

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from virnucpro.errors import InputError, NotARunError, UsageError
from virnucpro.joined import members
from virnucpro.report.output_file import require_place
from virnucpro.run.run import Run, refuse_run_files
from virnucpro.run_dir import RunDirectory
from virnucpro.store.aggregate import RowNames, write_embeddings
from virnucpro.store.coverage import Coverage, Survey, survey

_IN_SHARDS: Final = "shards/rank-*/unit-*.h5"
_JOINED: Final = RunDirectory(Path()).segments_file
_PATTERNS: Final = (
    *("unit-*.h5", "rank-*/unit-*.h5", f"run/{_IN_SHARDS}", f"run/tasks/*/{_IN_SHARDS}"),
    *(_JOINED.name, str(_JOINED)),
)


def find_segments(paths: Sequence[Path]) -> list[Path]:
    """Return the files in `paths`, and the segments in joined files and folders in `paths`.

    Each folder is a shard, a folder of shards, or a run folder. Temporary files are ignored.

    Raises
    ------
    InputError
        If a path does not exist, or is a folder without segments.
    OSError
        If a joined file is damaged.
    """
    found: list[Path] = []
    for path in paths:
        if path.is_dir():
            inside = sorted(file for pattern in _PATTERNS for file in path.glob(pattern))
            if not inside:
                raise InputError(
                    f"{path}: the folder has no segments (unit-*.h5). Give a shard folder or a run "
                    "folder."
                )
            found += inside
        elif path.exists():
            found.append(path)
        else:
            raise InputError(f"{path}: no such file or folder. Check the path.")
    of = {path: members(path) if path.name == _JOINED.name else [path] for path in found}
    return [segment for segments in of.values() for segment in segments]


def aggregate_segments(
    paths: Sequence[Path], output: Path, index_folder: Path | None = None
) -> tuple[Coverage, int]:
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

    Returns
    -------
    Coverage of the segments, and the number of vectors in the file.

    Raises
    ------
    UsageError
        If `output` cannot be written, is one of the segments, is a file of a run other than
        embeddings.h5, or is an input of the run. No segment has been read.
    InputError, StoreError
        If a path holds no segments, files belong to different runs, copies of a unit differ by
        more than rounding, or rows are not in the index. The error names the files.
    NotARunError, IndexFormatError
        If `index_folder` is neither a run nor its index, or is damaged.
    """
    segments = find_segments(paths)
    require_place(output)  # now, because reading the segments may take hours
    places = {place for path in segments for place in (path, path.parent)}
    if output.exists() and any(place.exists() and output.samefile(place) for place in places):
        raise UsageError(f"{output} is one of the segments; choose another output file")
    run = None if index_folder is None else _run_of(index_folder)
    refuse_run_files(output, [*paths, *([run.root] if run else [])], "embeddings.h5")
    if run is None:
        coverage = survey(segments)
        index_of_rows = RowNames(coverage)
        write_embeddings(output, coverage, index_of_rows)
        return coverage, index_of_rows.n_items
    opened = Run.open(run)
    index, manifest = opened.index, opened.manifest
    reading = Survey(segments, opened.bounds, manifest.fingerprint)
    coverage = write_embeddings(output, reading, index, manifest.views, manifest.about_vectors)
    return coverage, index.n_items


def _run_of(folder: Path) -> RunDirectory:
    """Return the run for which `folder` is the run folder or the index folder.

    Raises
    ------
    NotARunError
        If there is no such run.
    """
    indexes = (folder.absolute(), folder.resolve()) if folder.is_dir() else ()
    for run in map(RunDirectory, (folder, *(path.parent.parent for path in indexes))):
        named = run.root == folder or (run.index.is_dir() and run.index.samefile(folder))
        if named and run.run_json.exists():
            return run
    raise NotARunError(
        f"{folder} is neither a run folder nor the index of a run; pass the folder of the run"
    )

"""The runs that a report is about: those below a folder, and files without a result."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from virnucpro.launch_dir import JSON_NAME, TASKS_NAME
from virnucpro.pipeline.jobs.job import Reporter
from virnucpro.pipeline.run.manifest import is_manifest
from virnucpro.report.reading.launch_gaps import LaunchGaps, read_launch_gaps
from virnucpro.run_dir import RunDirectory

__all__ = ["FoundRuns", "find_runs"]

_NAMED: Final = 3


@dataclass(frozen=True, slots=True)
class FoundRuns:
    """Runs with tables, and sentences on what the report lacks beside them."""

    runs: Sequence[RunDirectory]
    missing: Sequence[str]


def find_runs(folders: Sequence[Path], reporter: Reporter) -> FoundRuns:
    """Return the runs in `folders`: each is a run, or a folder of runs, such as that of launch.

    Runs below a folder that cannot have a report, and files of a launch without a result, are left
    out, with a warning.

    Raises
    ------
    StoreError
        If the table of a launch is damaged.
    OSError
        If a folder or table cannot be read.
    """
    found: dict[Path, None] = {}
    left_out: list[Path] = []
    launches: dict[Path, None] = {}
    for folder in folders:
        below = [] if is_manifest(folder / "run.json") else [*_below(folder)]
        for path in below or [folder]:
            if (path / JSON_NAME).is_file() and not is_manifest(path / "run.json"):
                launches[path] = None
            elif below and not RunDirectory(path).predictions.is_file():
                left_out.append(path)
            else:
                found[path] = None
    gaps = [one for one in (read_launch_gaps(path, found) for path in launches) if one.files]
    of_launches = {path for one in gaps for path in one.folders()}
    alone = [str(path) for path in left_out if path not in of_launches]
    missing = [text for one in gaps for text in one.sentences()]
    for one in gaps:
        reporter.warn(_shortly(one))
    if alone:
        names = ", ".join(alone[:_NAMED]) + ", ..." * (len(alone) > _NAMED)
        text = f"{len(alone):,} runs without predictions.tsv are left out: {names}"
        reporter.warn(text)
        missing.append(text)
    return FoundRuns([RunDirectory(path) for path in found], missing)


def _shortly(gaps: LaunchGaps) -> str:
    head, *files = gaps.sentences()
    return f"{head} {'; '.join(files)}"


def _below(folder: Path) -> Iterator[Path]:
    """Yield the folders of runs and launches below a folder or the folder itself, sorted.

    A run is not searched for further runs.
    """
    if not folder.is_dir():
        return
    if (folder / JSON_NAME).is_file():
        yield folder
    for path in sorted(folder.iterdir()):
        if path.is_dir() and (path / "run.json").is_file() and is_manifest(path / "run.json"):
            yield path
        elif path.is_dir() and not path.is_symlink() and not _is_of_launch(path):
            yield from _below(path)


def _is_of_launch(path: Path) -> bool:
    """Return whether a folder holds the tables of the tasks of a launch."""
    return path.name == TASKS_NAME and (path.parent / JSON_NAME).is_file()

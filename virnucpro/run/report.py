"""Write report.html and the files for MultiQC from finished run folders."""

import os
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final

from virnucpro.errors import RunError, StoreError, UsageError, VirnucproError
from virnucpro.extras import require_extra
from virnucpro.folder_lock import is_held
from virnucpro.launch_dir import TASKS_NAME, TSV_NAME, is_launch
from virnucpro.report.multiqc import write_multiqc
from virnucpro.report.output_file import require_place
from virnucpro.report.reading.facts import RunFacts, read_facts
from virnucpro.report.reading.launch_gaps import read_launch_gaps
from virnucpro.report.reading.records import find_record
from virnucpro.run.manifest import read_manifest
from virnucpro.run.reporter import Reporter
from virnucpro.run.run import Run, refuse_run_files
from virnucpro.run_dir import RunDirectory, is_run
from virnucpro.tables.source import RunScores

_COMMON_NAMES: Final = {
    *("out", "output", "outdir", "result", "results", "run", "predict", "virnucpro", "viral"),
}
"""Names of run folders that many samples share: the next other folder above is added."""
_FIGURES: Final = (".png", ".svg", ".pdf")


def renew_report(run: Run, reporter: Reporter, scores: RunScores, *, wanted: bool = True) -> None:
    """Write the files for MultiQC and the report of a run of predict, whose lock is held.

    `scores` are those of the tables, which were just written. If a file cannot be written, a
    warning says why: the tables of the run are complete.
    """
    paths = run.paths
    try:
        if wanted:
            reporter.stage(f"writing {paths.report.name}")
        sample = sample_names([paths.root])[0]
        facts = read_facts(paths, run.manifest.as_json(), sample, scores=scores)
        write_multiqc(facts, plots=wanted)
        if wanted:
            _write(paths.report, [facts], 1)
    except (VirnucproError, OSError, MemoryError) as error:
        reporter.warn(
            f"the report could not be written ({str(error) or 'out of memory'}). All tables are "
            f"written. To write the report again: virnucpro report {paths.root}"
        )


def prepare_report() -> None:
    """Import what the report needs, and compile its template, while nothing else is to be done."""
    from virnucpro.report.html.page import page_template  # noqa: PLC0415 - imports Jinja2

    page_template()


def report_on(folders: Sequence[Path], output: Path | None, reporter: Reporter) -> Path:
    """Write a report over the runs in `folders`; return its path.

    The report of one run is written into its folder, with its files for MultiQC, unless `output`
    names another file.

    Raises
    ------
    UsageError
        If there are several runs and no output, or the output is a file or an input of a run, a
        folder, or in a folder that does not exist.
    RunError, StoreError
        If a folder is not a run of predict, or has no tables, or they are damaged, or the report
        cannot be written; an existing file is unchanged.
    """
    runs, missing = find_runs(folders, reporter)
    if not runs:
        raise StoreError("none of the runs has tables, so that there is nothing to report")
    if output is None and len(runs) > 1:
        raise UsageError(f"{len(runs)} runs: name the report of all of them with -o FILE")
    path = output or runs[0].report
    for run in runs:
        _require_tables(run)
    require_place(path)
    refuse_run_files(path, [run.root for run in runs], runs[0].report.name)
    reporter.stage(f"reading {len(runs):,} runs" if len(runs) > 1 else f"reading {runs[0].root}")
    names = sample_names([run.root for run in runs])
    facts = _all_facts(runs, names, for_multiqc=output is None)
    try:
        _write(path, facts, len(runs), missing)
    except RunError as error:
        if output is None and isinstance(error.__cause__, OSError):
            raise RunError(
                f"no {path.name} can be written into {runs[0].root} ({error}). To write it to "
                f"another place: virnucpro report {runs[0].root} -o FILE"
            ) from error.__cause__
        raise
    return path


def _all_facts(
    runs: Sequence[RunDirectory], names: Sequence[str], *, for_multiqc: bool
) -> Iterator[RunFacts]:
    for run, name in zip(runs, names, strict=True):
        facts = _facts(run, name)
        if for_multiqc:
            write_multiqc(facts)
        yield facts


def _write(path: Path, runs: Iterable[RunFacts], n_runs: int, missing: Sequence[str] = ()) -> None:
    from virnucpro.report.html.page import write_page  # noqa: PLC0415 - imports Jinja2

    write_page(path, runs, n_runs, missing)


def plot_run(
    folder: Path,
    output: Path,
    name: str | None = None,
    *,
    file: str | None = None,
    record: int | None = None,
    place: tuple[int | None, int | None] = (None, None),
) -> None:
    """Draw the scores of a run of predict, or the window scores of one sequence.

    Parameters
    ----------
    output
        Figure to write: its name ends in .png, .svg or .pdf.
    name, file, record
        Name of the sequence; its input file and its number in this file, from 1, where names are
        equal. Without name and record: all sequences.
    place
        First and last base of the part of the sequence to draw, from 1; None: its ends.

    Raises
    ------
    UsageError
        If the format is unknown, matplotlib is not installed, there is no such sequence, or the
        output is a file or an input of the run, a folder, or in a folder that does not exist.
    RunError, StoreError
        As for `report_on`.
    """
    if output.suffix.lower() not in _FIGURES:
        raise UsageError(f"{output}: unknown format; name a file ending in .png, .svg or .pdf")
    require_extra("plot", "plot")
    from virnucpro.report.plots import plot_record, plot_scores  # noqa: PLC0415 - matplotlib

    require_place(output)
    run = RunDirectory(folder)
    _require_tables(run)
    refuse_run_files(output, [folder])
    facts = _facts(run, sample_names([folder])[0])
    if name is None and record is None:
        if any(place):
            raise UsageError("--start and --end need the name of a sequence, or --record")
        plot_scores(facts, output)
    else:
        row = find_record(facts.records.table, name, file, record)
        plot_record(facts, row, output, place)


def _facts(run: RunDirectory, sample: str) -> RunFacts:
    return read_facts(run, read_manifest(run).as_json(), sample, working=is_held(run.lock))


def _require_tables(run: RunDirectory) -> None:
    manifest = read_manifest(run)
    if manifest.command != "predict":
        raise RunError(
            f"{run.root} is a run of {manifest.command}, which has no calls: only runs of predict "
            "have a report and plots"
        )
    if not run.predictions.is_file():
        raise StoreError(
            f"{run.root} has no {run.predictions.name}: the run has not ended. Rerun its command "
            f"with --resume, or write the tables of its finished part: virnucpro aggregate "
            f"{run.root}"
        )
    if not manifest.tables_complete:
        raise StoreError(
            f"{run.root}: the tables were not completely written. Write them again: virnucpro "
            f"aggregate {run.root}"
        )


def sample_names(folders: Sequence[Path]) -> list[str]:
    """Return a name for each run: that of its folder, with a folder above if that is common.

    Folders above with a common name are left out. Equal names get more of their paths, so that the
    names are unique.
    """
    paths = [Path(os.path.abspath(folder)) for folder in folders]  # noqa: PTH100 - keeps links
    choices = [_longer_names(path) for path in paths]
    numbers = [0] * len(paths)
    while True:
        names = [own[number] for own, number in zip(choices, numbers, strict=True)]
        count = Counter(names)
        longer = [
            number + (count[name] > 1 and number < len(own) - 1)
            for name, number, own in zip(names, numbers, choices, strict=True)
        ]
        if longer == numbers:
            return names
        numbers = longer


def _longer_names(path: Path) -> list[str]:
    """Return the possible names of a run, from the shortest to the whole path."""
    *above, own = path.parts[1:] or (path.name,)
    telling = [part for part in above if part.lower() not in _COMMON_NAMES]
    first = min(len(telling), own.lower() in _COMMON_NAMES)
    shorter = range(first, len(telling) + 1)
    parts = [[*telling[len(telling) - number :], own] for number in shorter]
    return ["_".join(part) for part in (*parts, [*above, own])]


_NAMED: Final = 3


def find_runs(folders: Sequence[Path], reporter: Reporter) -> tuple[list[RunDirectory], list[str]]:
    """Return the runs with tables in `folders`, and sentences on what the report lacks.

    Each folder is that of a run, or a folder of runs, such as that of launch.
    Runs below a folder that cannot have a report, files of a launch without a result, and runs of
    files that a launch no longer has, are left out, with a warning.

    Raises
    ------
    StoreError
        If the table of a launch is damaged.
    OSError
        If a folder or table cannot be read.
    """
    found: dict[Path, None] = {}
    left_out: list[Path] = []
    of_files: dict[Path, None] = {}
    for folder in folders:
        below = [] if is_run(folder) else [*_below(folder)]
        for path in below or [folder]:
            if is_launch(path) and not is_run(path):
                of_files[path] = None
            elif below and not RunDirectory(path).predictions.is_file():
                left_out.append(path)
            else:
                found[path] = None
    launches = [read_launch_gaps(path, found) for path in of_files]
    current = {launch.folder / name for launch in launches for name in launch.names}.union(folders)
    former = [path for path in found if path not in current and of_files.keys() & {*path.parents}]
    gaps = [launch for launch in launches if launch.files]
    listed = {path for gap in gaps for path in gap.folders()}
    failed = {
        gap.folder / name for gap in gaps for name, status, _ in gap.files if status != "left"
    }
    gone = {*former, *failed} - {*folders}  # failed: they may have results of an earlier launch
    found = dict.fromkeys(path for path in found if path not in gone)
    alone = [path for path in left_out if path not in listed]
    missing = [text for gap in gaps for text in gap.sentences()]
    for gap in gaps:
        head, *files = gap.sentences()
        reporter.warn(f"{head} {'; '.join(files)}")
    for paths, reason in ((former, f"not in {TSV_NAME}"), (alone, "without predictions.tsv")):
        if paths:
            names = ", ".join(map(str, paths[:_NAMED])) + ", ..." * (len(paths) > _NAMED)
            text = f"runs {reason} are left out ({len(paths):,}): {names}"
            reporter.warn(text)
            if paths is alone:
                missing.append(text)
    return [RunDirectory(path) for path in found], missing


def _below(folder: Path) -> Iterator[Path]:
    """Yield the folders of runs and launches below a folder or the folder itself, sorted.

    A run is not searched for further runs, nor is a folder whose name begins with a dot.
    """
    if not folder.is_dir():
        return
    if is_launch(folder):
        yield folder
    for path in sorted(folder.iterdir()):
        if path.is_dir() and is_run(path):
            yield path
        elif path.is_dir() and not path.is_symlink() and not path.name.startswith("."):
            of_tasks = path.name == TASKS_NAME and is_launch(folder)
            yield from () if of_tasks else _below(path)

"""Write report.html and the files for MultiQC from finished run folders."""

import os
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final

from virnucpro.errors import RunError, StoreError, UsageError, VirnucproError
from virnucpro.extras import require_extra
from virnucpro.folder_lock import is_held
from virnucpro.launch_dir import JSON_NAME, TSV_NAME, is_launch, read_table, read_tables
from virnucpro.report.multiqc import write_multiqc
from virnucpro.report.output_file import require_place
from virnucpro.report.reading.facts import RunFacts, read_facts
from virnucpro.report.reading.records import find_record
from virnucpro.run.calls import call_run, survey_segments
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
        facts = read_facts(paths, run.manifest.as_json(), sample, scores)
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
        If a folder is not a run of predict, has no tables or is damaged, or the report cannot be
        written; an existing file is unchanged.
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
    opened = Run.open(run)
    scores = call_run(opened, survey_segments(opened, Reporter()))
    manifest = opened.manifest.as_json()
    return read_facts(run, manifest, sample, scores, working=is_held(run.lock))


def _require_tables(run: RunDirectory) -> None:
    manifest = read_manifest(run)
    if manifest.command != "predict":
        raise RunError(
            f"{run.root} is a run of {manifest.command}, which has no calls: only runs of predict "
            "have a report and plots"
        )
    if not manifest.tables_complete:
        raise StoreError(
            f"{run.root} has no tables: rerun its command with --resume, or write those of its "
            f"finished part with virnucpro aggregate {run.root}"
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

    Each folder is that of a run, or a folder of runs, such as that of launch. Runs below it without
    tables, and files of a launch without a result, are left out, with a warning.

    Raises
    ------
    StoreError
        If the table of a launch is damaged.
    OSError
        If a folder or table cannot be read.
    """
    runs: dict[Path, None] = {}
    lacking: list[str] = []
    for folder in folders:
        below = [] if is_run(folder) else [*_runs_below(folder, lacking)]
        with_tables = [path for path in below if RunDirectory(path).predictions.is_file()]
        if without := [str(path) for path in below if path not in with_tables]:
            names = ", ".join(without[:_NAMED]) + ", ..." * (len(without) > _NAMED)
            lacking.append(f"runs without predictions.tsv are left out ({len(without):,}): {names}")
        alone = is_run(folder) or not (below or is_launch(folder))
        runs |= dict.fromkeys([folder] if alone else with_tables)
    for text in lacking:
        reporter.warn(text)
    return [RunDirectory(path) for path in runs], lacking


def _runs_below(folder: Path, lacking: list[str]) -> Iterator[Path]:
    """Yield the run folders below a folder, sorted; of a launch, those of its files with a result.

    The number of the other files of a launch is added to `lacking`. A run is not searched for
    further runs, nor is a folder whose name begins with a dot.
    """
    if is_launch(folder):
        content = read_table(folder / JSON_NAME)
        # The tables of tasks may be newer than the joined one.
        tables = (content, *read_tables(folder, content.get("tasks") or 0).values())
        statuses = {
            folder / os.path.relpath(file["file"], table["input_dir"]): file["status"]
            for table in tables
            for file in table["files"]
        }
        yield from sorted(path for path, status in statuses.items() if status.answered)
        if failed := sum(not status.answered for status in statuses.values()):
            lacking.append(
                f"{folder.name}: {failed:,} of {len(statuses):,} files have no result, and "
                f"{TSV_NAME} lists them"
            )
        return
    for path in sorted(folder.iterdir()) if folder.is_dir() else ():
        if path.is_dir() and is_run(path):
            yield path
        elif path.is_dir() and not path.is_symlink() and not path.name.startswith("."):
            yield from _runs_below(path, lacking)

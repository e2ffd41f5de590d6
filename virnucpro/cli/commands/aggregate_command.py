"""Write the tables of a run of several tasks or with missing segments, or join segments.

With a run folder: verify its segments and write its tables from the valid ones, also while tasks
work. Sequences without a result are listed in missing.tsv (exit code 2). With -o: join segments of
one run from any folders into one embeddings.h5. Rows without a segment are printed (exit code 2).
Without --index the number of rows of the run is unknown, and the exit code is always 2.
"""

import argparse
from pathlib import Path

from virnucpro.cli import options
from virnucpro.cli.exit_codes import ExitCode
from virnucpro.cli.run_job import exit_code
from virnucpro.console import say
from virnucpro.errors import UsageError
from virnucpro.run.execution import Execution
from virnucpro.run.reporter import open_reporter


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command ``aggregate``."""
    text = "run folder; with -o: segment files, shard folders or run folders"
    parser.add_argument("paths", nargs="+", type=Path, metavar="PATH", help=text)
    text = "embeddings.h5 to write from the segments in PATH; default: write the tables of a run"
    parser.add_argument("-o", "--output", type=Path, metavar="FILE", help=text)
    text = (
        "with -o: run folder or its index folder, as source of names and input order; default: "
        "row numbers as names"
    )
    parser.add_argument("--index", type=Path, metavar="DIR", help=text)
    options.add(parser, Execution, only=("report", "lock", "fail_empty"))
    options.add_quiet(parser)


def run(arguments: argparse.Namespace) -> int:
    """Run the command ``aggregate``; return its exit code."""
    if arguments.output is not None:
        return _aggregate_segments(arguments)
    if arguments.index is not None or len(arguments.paths) > 1:
        raise UsageError("give one run folder, or name the output of joined segments with -o FILE")
    return _aggregate_run(arguments)


def _aggregate_run(arguments: argparse.Namespace) -> int:
    from virnucpro.run.outputs import write_outputs
    from virnucpro.run.run import reopened
    from virnucpro.run_dir import RunDirectory

    paths = RunDirectory(arguments.paths[0])
    execution = Execution(paths.root, **options.chosen(Execution, arguments))
    with (
        open_reporter(
            quiet=arguments.quiet,
            if_stopped="All segments are kept. Rerun the command.",
            if_partial="To compute these sequences, rerun the command of the run with --resume, or "
            "its tasks.",
        ) as reporter,
        reopened(paths, lock=execution.lock) as run,
    ):
        outcome = write_outputs(run, reporter, report=execution.report)
        reporter.finish(outcome)
    return exit_code(outcome, arguments)


def _aggregate_segments(arguments: argparse.Namespace) -> int:
    from virnucpro.run.aggregate_segments import aggregate_segments
    from virnucpro.store.schema import RowState

    output: Path = arguments.output
    coverage, n_items = aggregate_segments(arguments.paths, output, arguments.index)
    lines = [f"warning: file not used: {file.reason}" for file in coverage.rejected]
    if coverage.gaps:
        print("first_row", "last_row", sep="\t")
        for first, end in coverage.gaps:
            print(first, end - 1, sep="\t")
        rows = sum(end - first for first, end in coverage.gaps)
        lines.append(
            f"warning: partial: {rows:,} rows have no segment. Add their shards to the command."
        )
    if not coverage.all_known:
        lines.append(
            "warning: the index of the run is unknown (exit code 2): the last rows may be missing, "
            "names are numbers of rows, and rows that have no vector (pieces of a record, for "
            "example) are zeros. Give the run folder or its index with --index."
        )
    if n_rows := int((coverage.row_state == RowState.QUARANTINED).sum()):
        lines.append(f"warning: {n_rows:,} rows are quarantined: their vectors are NaN")
    if not arguments.quiet:
        lines.append(f"{n_items:,} vectors written: {output}")
    for line in lines:
        say(line)
    partial = not coverage.complete or bool(coverage.rejected or n_rows)
    return ExitCode.PARTIAL if partial else ExitCode.OK

"""Write the outputs of a run with missing segments, or join segments (files of vectors).

With a run folder: verify its segments and write its tables from the valid ones. Sequences without a
result are listed in missing.tsv (exit code 2). With -o: join segments of one run from any folders
into one embeddings.h5. Rows without a segment are printed (exit code 2). Without --index the number
of rows of the run is unknown, and the exit code is always 2.
"""

import argparse
from pathlib import Path

from virnucpro.cli import options
from virnucpro.cli.exit_codes import ExitCode
from virnucpro.cli.progress import open_reporter
from virnucpro.console import say
from virnucpro.errors import UsageError

__all__ = ["add_options"]


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
    options.add_report(parser)
    options.add_quiet(parser)
    options.add_no_lock(parser)
    parser.set_defaults(run=_run)


def _run(arguments: argparse.Namespace) -> int:
    if arguments.output is not None:
        return _aggregate_segments(arguments)
    if arguments.index is not None or len(arguments.paths) > 1:
        raise UsageError("give one run folder, or name the output of joined segments with -o FILE")
    return _aggregate_run(arguments)


def _aggregate_run(arguments: argparse.Namespace) -> int:
    from virnucpro.pipeline.run.outputs import write_outputs
    from virnucpro.pipeline.run.session import reopen_session
    from virnucpro.run_dir import RunDirectory

    with (
        open_reporter(
            quiet=arguments.quiet,
            if_stopped="All segments are kept. Rerun the command.",
            if_partial="To compute these sequences, rerun the command of the run with --resume.",
        ) as reporter,
        reopen_session(RunDirectory(arguments.paths[0]), lock=arguments.lock) as session,
    ):
        outcome = write_outputs(session, reporter, report=arguments.report)
        reporter.finish(outcome)
    return ExitCode.OK if outcome.complete else ExitCode.PARTIAL


def _aggregate_segments(arguments: argparse.Namespace) -> int:
    from virnucpro.pipeline.run.aggregate_segments import aggregate_segments

    outcome = aggregate_segments(arguments.paths, arguments.output, arguments.index)
    coverage = outcome.coverage
    lines = [f"warning: file not used: {one.reason}" for one in coverage.rejected]
    if coverage.gaps:
        print("first_row", "last_row", sep="\t")
        for first, end in coverage.gaps:
            print(first, end - 1, sep="\t")
        rows = sum(end - first for first, end in coverage.gaps)
        lines.append(
            f"warning: partial: {rows:,} rows have no segment. Add their shards to the command."
        )
    if coverage.n_rows is None:
        lines.append(
            "warning: the number of rows of the run is unknown, so the last rows may be missing "
            "(exit code 2). Give the run folder or its index with --index."
        )
    if n_rows := outcome.rows_quarantined:
        lines.append(f"warning: {n_rows:,} rows are quarantined: their vectors are NaN")
    if not arguments.quiet:
        lines += [f"note: {note}" for note in coverage.notes]
        lines.append(f"{outcome.n_items:,} vectors written: {arguments.output}")
    for line in lines:
        say(line)
    return ExitCode.PARTIAL if outcome.partial else ExitCode.OK

"""``virnucpro aggregate``: outputs of a partial run, or of loose segments."""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from virnucpro.cli.exit_codes import ExitCode
from virnucpro.cli.options import a_path, add_quiet_option
from virnucpro.cli.progress import Advice, open_reporter
from virnucpro.console import say
from virnucpro.errors import UsageError

if TYPE_CHECKING:
    from virnucpro.pipeline.run.aggregate_segments import LooseOutcome

__all__ = ["add_options"]

_ADVICE = Advice(
    stopped="All segments are kept. Rerun the command.",
    partial="To compute them, rerun the command of the run with --resume.",
)


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the description and the options of the command."""
    parser.description = (
        "With a run folder: verify its segments and write its tables from the valid ones. "
        "Sequences without a result are listed in missing.tsv (exit code 2). With -o: join "
        "segments of one run from any folders into one embeddings.h5. Rows without a segment are "
        "printed (exit code 2). Without --index the number of rows of the run is unknown, and the "
        "exit code is always 2."
    )
    parser.add_argument(
        "paths",
        nargs="+",
        type=a_path,
        metavar="PATH",
        help="run folder; with -o: segment files, shard folders or run folders",
    )
    parser.add_argument(
        "-o",
        "--output",
        type=a_path,
        metavar="FILE",
        help="write FILE (an embeddings.h5) from the segments in PATH",
    )
    parser.add_argument(
        "--index",
        type=a_path,
        metavar="DIR",
        help="with -o: run folder or its index folder, which gives names and input order; default: "
        "the names are row numbers",
    )
    add_quiet_option(parser)
    parser.set_defaults(run=_run)


def _run(arguments: argparse.Namespace) -> int:
    if arguments.output is not None:
        return _aggregate_segments(arguments)
    if arguments.index is not None or len(arguments.paths) > 1:
        raise UsageError("give one run folder, or name the output of joined segments with -o FILE")
    return _aggregate_run(arguments.paths[0], quiet=arguments.quiet)


def _aggregate_run(folder: Path, *, quiet: bool) -> int:
    from virnucpro.pipeline.run.outputs import write_outputs
    from virnucpro.pipeline.run.session import reopen_session
    from virnucpro.run_dir import RunDirectory

    with (
        open_reporter(folder, quiet=quiet, advice=_ADVICE) as reporter,
        reopen_session(RunDirectory(folder)) as session,
    ):
        outcome = write_outputs(session, reporter)
        reporter.finish(outcome)
    return ExitCode.OK if outcome.complete else ExitCode.PARTIAL


def _aggregate_segments(arguments: argparse.Namespace) -> int:
    from virnucpro.pipeline.run.aggregate_segments import aggregate_segments

    outcome = aggregate_segments(arguments.paths, arguments.output, arguments.index)
    gaps = outcome.coverage.gaps
    if gaps:
        print("first_row", "last_row", sep="\t")
    for first, end in gaps:
        print(first, end - 1, sep="\t")
    _report(arguments.output, outcome, quiet=arguments.quiet)
    return ExitCode.PARTIAL if outcome.partial else ExitCode.OK


def _report(output: Path, outcome: "LooseOutcome", *, quiet: bool) -> None:
    warnings = [f"segment not used: {one.reason}" for one in outcome.coverage.rejected]
    if outcome.coverage.gaps:
        rows = sum(end - first for first, end in outcome.coverage.gaps)
        warnings.append(f"partial: {rows:,} rows have no segment. Add their shards to the command.")
    if outcome.coverage.n_rows is None:
        warnings.append(
            "the number of rows of the run is unknown, so the last rows may be missing (exit code "
            "2). Give the run folder or its index with --index."
        )
    if outcome.rows_quarantined:
        warnings.append(f"{outcome.rows_quarantined:,} rows are quarantined: their vectors are NaN")
    lines = [f"warning: {text}" for text in warnings]
    if not quiet:
        lines += [f"note: {note}" for note in outcome.coverage.notes]
        lines.append(f"{outcome.n_items:,} vectors written: {output}")
    for line in lines:
        say(line)

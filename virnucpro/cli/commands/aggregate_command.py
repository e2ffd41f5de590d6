"""``virnucpro aggregate``: outputs from whatever segments there are."""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from virnucpro.cli.exit_codes import ExitCode
from virnucpro.cli.options import a_path
from virnucpro.cli.progress import Advice, open_reporter
from virnucpro.console import say
from virnucpro.errors import UsageError

if TYPE_CHECKING:
    from virnucpro.pipeline.run.aggregate_segments import LooseOutcome

__all__ = ["add_parser"]

_ADVICE = Advice(
    stopped="What was computed is safe: repeat the command.",
    partial="To compute them, repeat the run's own command with --resume.",
)


def add_parser(commands: Any) -> None:  # noqa: ANN401 - argparse keeps the type of subparsers private
    """Add the command and its options."""
    parser = commands.add_parser(
        "aggregate",
        help="make outputs from what has been computed so far",
        description="With a run: verify its segments and write its tables from those that are "
        "whole; sequences without them are listed in missing.tsv (exit code 2). With -o: join any "
        "segments of one run, wherever they lie, into one embeddings.h5; rows that no segment "
        "holds are printed (exit code 2). Without --index nobody knows which rows come behind the "
        "last one, so the exit code is 2 then as well.",
    )
    parser.add_argument(
        "paths",
        nargs="+",
        type=a_path,
        metavar="PATH",
        help="folder of the run; with -o, segment files and shard folders",
    )
    parser.add_argument(
        "-o",
        "--output",
        type=a_path,
        metavar="FILE",
        help="write this one file from loose segments",
    )
    parser.add_argument(
        "--index",
        type=a_path,
        metavar="DIR",
        help="with -o: the run, or the index in it, for names and input order; without it, vectors "
        "are named by their rows",
    )
    parser.add_argument("-q", "--quiet", action="store_true", help="print warnings and errors only")
    parser.set_defaults(run=_run)


def _run(arguments: argparse.Namespace) -> int:
    if arguments.output is not None:
        return _aggregate_segments(arguments)
    if arguments.index is not None or len(arguments.paths) > 1:
        raise UsageError("give one run, or say with -o FILE where segments are to be joined")
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
    if outcome.gaps:
        print("first_row", "last_row", sep="\t")
    for first, end in outcome.gaps:
        print(first, end - 1, sep="\t")
    _tell(arguments.output, outcome, quiet=arguments.quiet)
    return ExitCode.PARTIAL if outcome.partial else ExitCode.OK


def _tell(output: Path, outcome: "LooseOutcome", *, quiet: bool) -> None:
    warnings = [f"segment not used: {reason}" for reason in outcome.rejected]
    if outcome.gaps:
        rows = sum(end - first for first, end in outcome.gaps)
        warnings.append(f"partial: {rows:,} rows have no segment; name their shards as well")
    if not outcome.indexed:
        warnings.append(
            "rows behind the last segment may be missing: without --index nobody knows how many "
            "the run has (exit code 2); name the run or its index to be sure"
        )
    if outcome.rows_quarantined:
        warnings.append(f"{outcome.rows_quarantined:,} rows have no numbers and never will")
    lines = [f"warning: {text}" for text in warnings]
    if not quiet:
        lines += [f"note: {note}" for note in outcome.notes]
        lines.append(f"{outcome.n_items:,} vectors written: {output}")
    for line in lines:
        say(line)

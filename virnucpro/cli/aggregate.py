"""``virnucpro aggregate``: tables from whatever segments a run has."""

import argparse
from pathlib import Path
from typing import Any

from virnucpro.cli.exit_codes import ExitCode
from virnucpro.cli.progress import open_reporter

__all__ = ["add_parser"]


def add_parser(commands: Any) -> None:  # noqa: ANN401 - argparse keeps the type of subparsers private
    """Add the command and its options."""
    parser = commands.add_parser(
        "aggregate",
        help="make the tables from what a run has computed so far",
        description="Verify a run's segments and write its tables from those that are whole. "
        "Sequences without them are listed in missing.tsv (exit code 2).",
    )
    parser.add_argument("run_folder", type=Path, metavar="RUN", help="folder of the run")
    parser.add_argument("-q", "--quiet", action="store_true", help="print warnings and errors only")
    parser.set_defaults(run=_run)


def _run(arguments: argparse.Namespace) -> int:
    from virnucpro.pipeline.outputs import write_outputs
    from virnucpro.pipeline.session import reopen_session
    from virnucpro.run_dir import RunDirectory

    with (
        open_reporter(arguments.run_folder, quiet=arguments.quiet) as reporter,
        reopen_session(RunDirectory(arguments.run_folder)) as session,
    ):
        outcome = write_outputs(session, reporter)
        reporter.finish(outcome)
    return ExitCode.OK if outcome.complete else ExitCode.PARTIAL

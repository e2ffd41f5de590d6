"""``virnucpro verify``: whether a run is whole, to the last byte."""

import argparse
import json
from typing import Any

from virnucpro.cli.exit_codes import ExitCode
from virnucpro.cli.options import a_path

__all__ = ["add_parser"]


def add_parser(commands: Any) -> None:  # noqa: ANN401 - argparse keeps the type of subparsers private
    """Add the command and its options."""
    parser = commands.add_parser(
        "verify",
        help="whether a run is whole",
        description="Read everything in a run folder back and compare it with what was written: "
        "run.json, index, segments, coverage, outputs. Exit code 0: clean; 1: problems, each "
        "listed with what to do; 2: nothing wrong, but units are missing.",
    )
    parser.add_argument("run_folder", type=a_path, metavar="RUN", help="folder of the run")
    parser.add_argument("--json", action="store_true", help="print JSON for a machine")
    parser.add_argument(
        "--repair",
        action="store_true",
        help="remove the segments that are torn or flipped, and nothing else; --resume redoes them",
    )
    parser.set_defaults(run=_run)


def _run(arguments: argparse.Namespace) -> int:
    from virnucpro.pipeline.run.verify import repair_run, verify_run
    from virnucpro.run_dir import RunDirectory

    check = repair_run if arguments.repair else verify_run
    found = check(RunDirectory(arguments.run_folder))
    print(json.dumps(found.as_dict(), indent=2) if arguments.json else found.as_text())
    if found.problems:
        return ExitCode.FAILED
    return ExitCode.PARTIAL if found.units_missing else ExitCode.OK

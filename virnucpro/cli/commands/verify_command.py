"""``virnucpro verify``: check all files of a run for damage."""

import argparse
import json
from dataclasses import asdict

from virnucpro.cli.exit_codes import ExitCode
from virnucpro.cli.options import a_path

__all__ = ["add_options"]


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the description and the options of the command."""
    parser.description = (
        "Read all files of a run folder and compare them with their checksums and with each "
        "other: run.json, index, segments, outputs. Exit code 0: no problems and no missing units; "
        "1: problems, each printed with the next step; 2: no problems, but units (blocks of rows) "
        "are not computed yet."
    )
    parser.add_argument("run_folder", type=a_path, metavar="RUN", help="folder of the run")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument(
        "--repair",
        action="store_true",
        help="delete damaged segments, and no other files; the run recomputes them with --resume",
    )
    parser.set_defaults(run=_run)


def _run(arguments: argparse.Namespace) -> int:
    from virnucpro.pipeline.run.verify import repair_run, verify_run
    from virnucpro.run_dir import RunDirectory

    check = repair_run if arguments.repair else verify_run
    found = check(RunDirectory(arguments.run_folder))
    print(json.dumps(asdict(found), indent=2, default=str) if arguments.json else found.as_text())
    if found.problems:
        return ExitCode.FAILED
    return ExitCode.PARTIAL if found.units_missing else ExitCode.OK

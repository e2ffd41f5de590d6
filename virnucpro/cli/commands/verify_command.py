"""Read all files of a run folder and compare them with their checksums and with each other.

The files are run.json, the index, the segments and the outputs. Exit code 0: no problems and no
missing units; 1: problems, each printed with the next step; 2: no problems, but units (blocks of
rows) are not computed yet.
"""

import argparse
import json
from dataclasses import asdict
from pathlib import Path

from virnucpro.cli import options
from virnucpro.cli.exit_codes import ExitCode
from virnucpro.run.execution import Execution


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command ``verify``."""
    parser.add_argument("folder", type=Path, metavar="RUN", help="folder of the run")
    options.add_json(parser)
    text = "delete damaged segments only; to recompute them, rerun the run's command with --resume"
    parser.add_argument("--repair", action="store_true", help=text)
    options.add(parser, Execution, only=("lock",))


def run(arguments: argparse.Namespace) -> int:
    """Run the command ``verify``; return its exit code."""
    from virnucpro.run.verify import repair_run, verify_run
    from virnucpro.run_dir import RunDirectory

    run = RunDirectory(arguments.folder)
    found = (
        repair_run(run, lock=getattr(arguments, "lock", True))
        if arguments.repair
        else verify_run(run)
    )
    print(json.dumps(asdict(found), indent=2, default=str) if arguments.json else found.as_text())
    if found.problems:
        return ExitCode.FAILED
    return ExitCode.PARTIAL if found.units_missing else ExitCode.OK

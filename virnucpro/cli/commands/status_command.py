"""Print the progress of a run, or of a launch of many files.

Works during the run; changes no files. Exit code 2: no process works on the run, and results are
missing.
"""

import argparse
import json
from pathlib import Path

from virnucpro.cli import options
from virnucpro.cli.exit_codes import ExitCode


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command ``status``."""
    parser.add_argument("folder", type=Path, metavar="RUN", help="folder of the run or launch")
    options.add_json(parser)


def run(arguments: argparse.Namespace) -> int:
    """Run the command ``status``; return its exit code."""
    from virnucpro.launch.table import LaunchProgress, read_launch
    from virnucpro.launch_dir import is_launch
    from virnucpro.run.run_progress import RunProgress, read_progress
    from virnucpro.run_dir import RunDirectory

    run = RunDirectory(arguments.folder)
    progress: RunProgress | LaunchProgress
    if is_launch(run.root) and not run.run_json.exists():
        progress = read_launch(run.root)
    else:
        progress = read_progress(run)
    print(json.dumps(progress.as_dict(), indent=2) if arguments.json else progress.as_text())
    incomplete = getattr(progress, "state", "") in {"incomplete", "computed", "stopped"}
    return ExitCode.PARTIAL if incomplete else ExitCode.OK

"""``virnucpro status``: how far a run or a launch is, asked from another process."""

import argparse
import json
from typing import Any

from virnucpro.cli.exit_codes import ExitCode
from virnucpro.cli.options import a_path

__all__ = ["add_parser"]


def add_parser(commands: Any) -> None:  # noqa: ANN401 - argparse keeps the type of subparsers private
    """Add the command and its options."""
    parser = commands.add_parser(
        "status",
        help="how far a run or a launch is",
        description="Tell how far a run, or a launch of many files, is, also while it goes on. "
        "Changes nothing.",
    )
    parser.add_argument(
        "run_folder", type=a_path, metavar="RUN", help="folder of the run or launch"
    )
    parser.add_argument("--json", action="store_true", help="print JSON for a machine")
    parser.set_defaults(run=_run)


def _run(arguments: argparse.Namespace) -> int:
    from virnucpro.launch.progress import LaunchProgress, is_launch, read_launch
    from virnucpro.pipeline.run.run_progress import RunProgress, read_progress
    from virnucpro.run_dir import RunDirectory

    run = RunDirectory(arguments.run_folder)
    progress: RunProgress | LaunchProgress
    if is_launch(run.root) and not run.run_json.exists():
        progress = read_launch(run.root)
    else:
        progress = read_progress(run)
    text = json.dumps(progress.as_dict(), indent=2) if arguments.json else progress.as_text()
    print(text)
    return ExitCode.OK

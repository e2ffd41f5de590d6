"""``virnucpro status``: progress of a run or launch, read from its folder."""

import argparse
import json

from virnucpro.cli.exit_codes import ExitCode
from virnucpro.cli.options import a_path

__all__ = ["add_options"]


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the description and the options of the command."""
    parser.description = (
        "Print the progress of a run, or of a launch of many files. Works during the run; changes "
        "no files."
    )
    parser.add_argument(
        "run_folder", type=a_path, metavar="RUN", help="folder of the run or launch"
    )
    parser.add_argument("--json", action="store_true", help="print JSON")
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

"""``virnucpro status``: how far a run is, asked from another process."""

import argparse
import json
from pathlib import Path
from typing import Any

from virnucpro.cli.exit_codes import ExitCode

__all__ = ["add_parser"]


def add_parser(commands: Any) -> None:  # noqa: ANN401 - argparse keeps the type of subparsers private
    """Add the command and its options."""
    parser = commands.add_parser(
        "status",
        help="how far a run is",
        description="Tell how far a run is, also while it goes on. Reads only.",
    )
    parser.add_argument("run_folder", type=Path, metavar="RUN", help="folder of the run")
    parser.add_argument("--json", action="store_true", help="print JSON for a machine")
    parser.set_defaults(run=_run)


def _run(arguments: argparse.Namespace) -> int:
    from virnucpro.pipeline.progress import RunProgress, read_progress
    from virnucpro.run_dir import RunDirectory

    progress: RunProgress = read_progress(RunDirectory(arguments.run_folder))
    text = json.dumps(progress.as_dict(), indent=2) if arguments.json else progress.as_text()
    print(text)
    return ExitCode.OK

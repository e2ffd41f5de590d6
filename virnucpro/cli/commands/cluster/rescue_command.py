"""Begin a round for the units that are missing in a run of several machines.

Then start virnucpro work RUN or virnucpro submit RUN again. Tasks of the earlier round may still
work: a unit that is computed twice does no harm.
"""

import argparse
from pathlib import Path

from virnucpro.cli import options
from virnucpro.cli.commands.cluster.plan_command import model_name, rank_count
from virnucpro.cli.exit_codes import ExitCode
from virnucpro.run.execution import Execution
from virnucpro.run.reporter import open_reporter


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command ``rescue``."""
    parser.add_argument("folder", type=Path, metavar="RUN", help="folder of the run")
    text = "planned number of workers of the round; default: that of the last round"
    parser.add_argument("--ranks", type=rank_count, metavar="N", help=text)
    text = "bundle or encoder of the run; default: that of the last round"
    parser.add_argument("-b", "--bundle", action=options.Once, metavar="NAME", help=text)
    options.add_quiet(parser)
    options.add(parser, Execution, only=("lock",))


def run(arguments: argparse.Namespace) -> int:
    """Run the command ``rescue``; return its exit code."""
    from virnucpro.cluster.merge import rescue

    folder = arguments.folder
    with open_reporter(quiet=arguments.quiet) as reporter:
        model = arguments.bundle and model_name(arguments.bundle)
        lock = getattr(arguments, "lock", True)
        begun = rescue(folder, reporter, workers=arguments.ranks, model=model, lock=lock)
    if begun is None:
        print(f"{folder}: no unit is missing. Write the tables with virnucpro merge {folder}")
    else:
        print(f"{folder}: round {begun.number} begun for {len(begun.units):,} units")
    return ExitCode.OK

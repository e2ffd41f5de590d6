"""Call the sequences of a run by another rule.

Read the scores of the run's segments, and write its tables again with other thresholds. Scores and
vectors are not computed again. The number of calls that changed is printed.
"""

import argparse
from pathlib import Path

from virnucpro.cli import options
from virnucpro.cli.exit_codes import ExitCode
from virnucpro.cli.progress import open_reporter

__all__ = ["add_options"]


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command ``rescore``."""
    parser.add_argument("run_folder", type=Path, metavar="RUN", help="run folder of predict")
    options.add_calls(parser)
    options.add_quiet(parser)
    parser.set_defaults(run=_run)


def _run(arguments: argparse.Namespace) -> int:
    from virnucpro.classify.call_options import CallOptions
    from virnucpro.pipeline.run.rescore import rescore
    from virnucpro.run_dir import RunDirectory

    calls = options.call_options(arguments) or CallOptions()
    with open_reporter(quiet=arguments.quiet) as reporter:
        changes, complete = rescore(RunDirectory(arguments.run_folder), calls, reporter)
    print("before", "now", "sequences", sep="\t")
    for (before, now), number in sorted(changes.items()):
        print(before, now, number, sep="\t")
    return ExitCode.OK if complete else ExitCode.PARTIAL

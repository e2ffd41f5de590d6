"""Call the sequences of a run by another rule.

Read the scores of the run's segments, and write its tables again with other thresholds. Vectors are
not computed again. The number of sequences with each pair of calls, by the former rule and now,
is printed.
"""

import argparse
from pathlib import Path

from virnucpro.cli import options
from virnucpro.cli.exit_codes import ExitCode
from virnucpro.console import say
from virnucpro.run.execution import Execution
from virnucpro.run.options import PredictOptions
from virnucpro.run.reporter import open_reporter


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command ``rescore``."""
    parser.add_argument("run_folder", type=Path, metavar="RUN", help="run folder of predict")
    options.add(parser, PredictOptions, only=("preset", "threshold", "fdr", "prevalence"))
    options.add(parser, Execution, only=("lock",))
    options.add_quiet(parser)


def run(arguments: argparse.Namespace) -> int:
    """Run the command ``rescore``; return its exit code."""
    from virnucpro.classifier.call_options import CallOptions
    from virnucpro.run.outputs import rescore
    from virnucpro.run_dir import RunDirectory

    calls = CallOptions(**options.chosen(CallOptions, arguments))
    with open_reporter(quiet=arguments.quiet) as reporter:
        run = RunDirectory(arguments.run_folder)
        changes, complete = rescore(run, calls, reporter, lock=getattr(arguments, "lock", True))
    lines = ["before\tnow\tsequences"]
    lines += [f"{before}\t{now}\t{number}" for (before, now), number in sorted(changes.items())]
    try:
        print(*lines, sep="\n", flush=True)
    except OSError as error:  # the tables of the run are written
        say(f"warning: the changes could not be printed: {error}")
    return ExitCode.OK if complete else ExitCode.PARTIAL

"""Write the report of one run or several.

The report is one HTML file that needs no network: calls, scores, the best sequences window by
window, regions, failures of workers, the parameters. Without -o it becomes DIR/report.html, with
files for MultiQC beside it. Several runs, or a folder of runs, give one report that compares them.
"""

import argparse
from pathlib import Path

from virnucpro.cli import options
from virnucpro.cli.exit_codes import ExitCode
from virnucpro.console import say
from virnucpro.run.reporter import open_reporter


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command ``report``."""
    text = "run folders of predict, or folders of them, such as that of launch"
    parser.add_argument("run_folders", nargs="+", type=Path, metavar="DIR", help=text)
    text = "HTML file to write; default for one run: DIR/report.html"
    parser.add_argument("-o", "--output", type=Path, metavar="FILE", help=text)
    options.add_quiet(parser)


def run(arguments: argparse.Namespace) -> int:
    """Run the command ``report``; return its exit code."""
    from virnucpro.run.report import report_on

    with open_reporter(quiet=arguments.quiet) as reporter:
        path = report_on(arguments.run_folders, arguments.output, reporter)
    if not arguments.quiet:
        say(f"written: {path}")
    return ExitCode.OK

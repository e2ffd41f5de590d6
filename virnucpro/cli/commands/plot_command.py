"""Draw the scores of a run, or the window scores of one sequence.

With NAME: the scores of the windows of this sequence along it, with its call and regions. Without
NAME: the distribution of the scores of all sequences. Needs matplotlib: pip install
'virnucpro[plot]'.
"""

import argparse
from pathlib import Path

from virnucpro.cli.exit_codes import ExitCode
from virnucpro.console import say
from virnucpro.option import positive


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command ``plot``."""
    parser.add_argument("run_folder", type=Path, metavar="DIR", help="run folder of predict")
    text = "name of a sequence, as in predictions.tsv; default: all sequences"
    parser.add_argument("name", nargs="?", metavar="NAME", help=text)
    text = "figure to write: its name ends in .png, .svg or .pdf"
    parser.add_argument("-o", "--output", type=Path, required=True, metavar="FILE", help=text)
    text = "number of the sequence in its file, from 1, where names are equal"
    parser.add_argument("--record", type=positive, metavar="N", help=text)
    text = "input file of the sequence, as in the column file of predictions.tsv"
    parser.add_argument("--file", metavar="NAME", help=text)
    for name, what in (("start", "first"), ("end", "last")):
        text = f"{what} base of the part of the sequence to draw, from 1; default: all"
        parser.add_argument(f"--{name}", type=positive, metavar="BASE", help=text)


def run(arguments: argparse.Namespace) -> int:
    """Run the command ``plot``; return its exit code."""
    from virnucpro.run.report import plot_run

    given = arguments
    which = {"file": given.file, "record": given.record, "place": (given.start, given.end)}
    plot_run(given.run_folder, given.output, given.name, **which)
    say(f"written: {given.output}")
    return ExitCode.OK

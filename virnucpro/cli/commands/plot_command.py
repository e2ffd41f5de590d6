"""Draw the scores of a run, or the window scores of one sequence.

With NAME: the scores of the windows of this sequence along it, with its call and regions. Without
NAME: the distribution of the scores of all sequences. Needs matplotlib: pip install
'virnucpro[plot]'.
"""

import argparse
from pathlib import Path

from virnucpro.cli.exit_codes import ExitCode
from virnucpro.console import say
from virnucpro.errors import UsageError
from virnucpro.extras import require_extra
from virnucpro.option import positive

_FORMATS = ("png", "svg", "pdf")


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
    parser.set_defaults(run=_run)


def _run(arguments: argparse.Namespace) -> int:
    output: Path = arguments.output
    if output.suffix.lower().removeprefix(".") not in _FORMATS:
        raise UsageError(f"{output}: unknown format; name a file ending in .png, .svg or .pdf")
    require_extra("plot", "plot")
    from virnucpro.report.output_file import require_place
    from virnucpro.report.plots import plot_record, plot_scores
    from virnucpro.report.reading.records import find_record
    from virnucpro.run.report import read_run

    require_place(output)
    facts = read_run(arguments.run_folder)
    if output.exists() and facts.run.owns(output):
        raise UsageError(f"{output} is a file of the run: choose another name")
    if arguments.name is None and arguments.record is None:
        plot_scores(facts, output)
    else:
        record = find_record(facts.records.table, arguments.name, arguments.file, arguments.record)
        plot_record(facts, record, output)
    say(f"written: {output}")
    return ExitCode.OK

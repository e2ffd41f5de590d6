"""Measure the accuracy of bundles and other tools on labelled sequences.

Cut viral and non-viral sequences into fragments, predict these with each bundle, and compare the
scores with the labels. DIR/evaluation.tsv has the figures by length, kingdom and group, with 95 %
intervals; DIR/paired.tsv the differences of tools. Kingdoms, and groups within a kingdom, count
equally. To compare another tool, write the fragments with --fragments-only, run the tool on
DIR/fragments/*.fa, and give a table of its scores with --predictions.
"""

import argparse
from dataclasses import replace
from math import isnan
from pathlib import Path
from typing import TYPE_CHECKING, Final

from virnucpro.cli import options
from virnucpro.cli.exit_codes import ExitCode
from virnucpro.cli.tables import aligned
from virnucpro.console import say
from virnucpro.lab.evaluation.request import Evaluation
from virnucpro.option import inner_share, integer_from, positive
from virnucpro.run.execution import Execution
from virnucpro.run.options import PredictOptions
from virnucpro.run.reporter import open_reporter

if TYPE_CHECKING:
    from virnucpro.lab.evaluation.comparison import Comparison, Row
    from virnucpro.lab.evaluation.labels import Source


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command ``evaluate``."""
    options.add_labelled(parser, "use the rows of this split only; all: every row")
    options.add_outdir(parser, "DIR", "output folder")
    _add_tools(parser)
    _add_fragments(parser)
    options.add(parser, PredictOptions, only=("precision",))
    options.add(parser, Execution, without=("report", "fail_empty", "task"))
    options.add_quiet(parser)
    options.add_json(parser)
    parser.set_defaults(**vars(Evaluation()))


def _add_tools(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("tools")
    text = "bundle (name or folder); repeat the option to compare bundles; default: mini"
    group.add_argument("-b", "--bundle", action="append", metavar="NAME", help=text)
    text = "evaluate the tables of --predictions only"
    group.add_argument("--no-bundle", action="store_true", help=text)
    text = (
        "tab-separated table of another tool: name, score (higher: viral) and label (viral or "
        "non-viral); repeat the option for more tools"
    )
    group.add_argument(
        "--predictions", type=_named, action="append", default=[], metavar="TOOL=FILE", help=text
    )


def _add_fragments(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("fragments")
    text = "lengths in bases, or whole (records as they are), comma-separated; default: "
    text += ",".join(Evaluation.lengths)
    group.add_argument("--lengths", type=_lengths, metavar="LIST", help=text)
    text = "maximum fragments per group and length; default: %(default)s"
    group.add_argument("--per-group", type=positive, metavar="N", help=text)
    text = "maximum fragments per class and length; groups share it equally; default: %(default)s"
    group.add_argument("--per-class", type=positive, metavar="N", help=text)
    text = "seed of fragments and resamples; default: %(default)s"
    group.add_argument("--seed", type=integer_from(0), metavar="N", help=text)
    text = "write DIR/fragments only: a FASTA file per length, and fragments.tsv with the labels"
    group.add_argument("--fragments-only", action="store_true", help=text)
    group = parser.add_argument_group("statistics")
    text = "share of viral sequences that precision, MCC, FDR and ECE stand for; default: "
    text += "%(default)s"
    group.add_argument("--prevalence", type=inner_share, metavar="P", help=text)
    text = "bootstrap resamples of groups; 0: no intervals; default: %(default)s"
    count, name = integer_from(0), "n_resamples"
    group.add_argument("--bootstrap", dest=name, type=count, metavar="N", help=text)


def _named(text: str) -> tuple[str, Path]:
    name, equals, value = text.partition("=")
    if not (name and equals and value) or not name.replace("-", "").replace("_", "").isalnum():
        raise argparse.ArgumentTypeError(
            f"{text!r} is not TOOL=FILE, where TOOL is a name of letters, digits, - and _"
        )
    return name, Path(value)


def _lengths(text: str) -> tuple[str, ...]:
    words = [word.strip() for word in text.split(",")]
    for word in words:
        if word != "whole" and not (word.isascii() and word.isdigit() and int(word) >= 30):
            raise argparse.ArgumentTypeError(
                f"{word!r} is not a length: give numbers of at least 30 bases, or whole"
            )
    return tuple(dict.fromkeys(word if word == "whole" else str(int(word)) for word in words))


def run(arguments: argparse.Namespace) -> int:
    """Run the command ``evaluate``; return its exit code."""
    sources = _sources(arguments)  # wrong usage is refused before h5py and torch are imported
    from virnucpro.lab.evaluation.evaluate import evaluate, write_fragments
    from virnucpro.lab.evaluation.input_table import read_regions

    inputs = {"labels": arguments.labels, "exclude": arguments.exclude}
    evaluation = replace(
        Evaluation(**options.chosen(Evaluation, arguments)),
        sources=sources,
        bundles=() if arguments.no_bundle else tuple(arguments.bundle or Evaluation.bundles),
        tables=dict(arguments.predictions),
        excluded=read_regions(arguments.exclude),
        inputs={name: path for name, path in inputs.items() if path is not None},
    )
    execution = Execution(**options.chosen(Execution, arguments))
    with open_reporter(quiet=arguments.quiet, force=execution.force) as reporter:
        if arguments.fragments_only:
            for path in write_fragments(evaluation, execution, reporter):
                print(path)
            return ExitCode.OK
        comparison, written = evaluate(evaluation, execution, reporter)
    if arguments.json:
        print((arguments.outdir / "evaluation.json").read_text(), end="")
    else:
        print(as_text(comparison))
    if not arguments.quiet:
        for path in written:
            say(f"written: {path}")
    return ExitCode.OK


def _sources(arguments: argparse.Namespace) -> "list[Source]":
    from virnucpro.lab.evaluation.labels import fasta_sources, read_labels

    if options.are_labelled_files(arguments, "split"):
        return fasta_sources(arguments.viral, arguments.non_viral)
    return read_labels(arguments.labels, arguments.split)


_ALL: Final = "all"
_COLUMNS: Final = {
    "auroc": "AUROC",
    "auprc": "AUPRC",
    "recall_at_fpr_5": "recall at 5 % FP",
    "mcc": "MCC",
    "fdr": "FDR",
    "ece": "ECE",
    "viral_as_viral": "viral called",
    "non_viral_as_viral": "non-viral called",
}
_COMPARED: Final = ("auroc", "recall_at_fpr_5", "mcc")


def as_text(comparison: "Comparison") -> str:
    """Return the figures of all fragments of each length, and the differences of tools."""
    rows = [row for row in comparison.rows if row.kingdom == _ALL]
    head = ("tool", "length", "viral", "non-viral", "no score", *_COLUMNS.values())
    lines = aligned([head, *map(_figures, rows)], right=set(range(1, len(head))))
    cells: dict[tuple[str, str], dict[str, str]] = {}
    for difference in comparison.differences:
        if difference.kingdom == _ALL and difference.figure in _COMPARED:
            name = (f"{difference.tool} - {difference.reference}", difference.length)
            text = _with_interval(difference.value, difference.interval, "+")
            cells.setdefault(name, {})[difference.figure] = text
    if cells:
        head = ("difference [95 %]", "length", *(_COLUMNS[name] for name in _COMPARED))
        table = [
            (*name, *(values[figure] for figure in _COMPARED)) for name, values in cells.items()
        ]
        lines += ["", *aligned([head, *table], right=set(range(1, len(head))))]
    notes = {f"no intervals at {row.length}: {row.note}" for row in rows if row.note}
    return "\n".join([*lines, *sorted(notes)])


def _figures(row: "Row") -> tuple[str, ...]:
    counts = (row.counts[name] for name in ("n_viral", "n_non_viral", "n_without_score"))
    figures = [_with_interval(row.values[name]) for name in _COLUMNS]
    figures[0] = _with_interval(row.values["auroc"], row.intervals.get("auroc"))
    return (row.tool, row.length, *(f"{count:,}" for count in counts), *figures)


def _with_interval(
    value: float, interval: tuple[float, float] | None = None, sign: str = ""
) -> str:
    if isnan(value):
        return "NA"
    text = format(value, f"{sign}.3f")
    if interval is None or isnan(interval[0]):
        return text
    low, high = (format(bound, f"{sign}.3f") for bound in interval)
    return f"{text} [{low}, {high}]"

"""Measure the accuracy of bundles and other tools on labelled sequences.

Cut viral and non-viral sequences into fragments, predict these with each bundle, and compare the
scores with the labels. DIR/evaluation.tsv has the figures by length, kingdom and group, with 95 %
intervals; DIR/paired.tsv the differences of tools; DIR/figures the curves. Kingdoms, and groups
within a kingdom, count equally. To compare another tool, write the fragments with --fragments-only,
run the tool on DIR/fragments/*.fa, and give its tables with --predictions.
"""

import argparse
from collections import defaultdict
from dataclasses import replace
from math import isfinite, isnan, nan
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from virnucpro.cli import options
from virnucpro.cli.exit_codes import ExitCode
from virnucpro.cli.tables import aligned
from virnucpro.console import say
from virnucpro.errors import UsageError
from virnucpro.extras import require_extra
from virnucpro.lab.evaluation.request import Evaluation, OtherTool
from virnucpro.option import inner_share, integer_from, positive
from virnucpro.run.execution import Execution
from virnucpro.run.options import PredictOptions
from virnucpro.run.reporter import open_reporter

if TYPE_CHECKING:
    from collections.abc import Sequence

    from virnucpro.lab.evaluation.comparison import Comparison, Difference, Row
    from virnucpro.lab.evaluation.labels import Source


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command ``evaluate``."""
    labelled = options.add_labelled(parser, "use the rows of this split only; all: every row")
    text = "table (columns record, group) of the sequences of --viral and --non-viral that are "
    text += "related; default: each record is a group"
    labelled.add_argument("--groups", type=Path, metavar="TSV", help=text)
    options.add_outdir(parser, "DIR", "output folder")
    _add_tools(parser)
    _add_fragments(parser)
    _add_statistics(parser)
    options.add(parser, PredictOptions, only=("precision",))
    options.add(parser, Execution, without=("report", "fail_empty", "task"))
    options.add_quiet(parser)
    text = "write DIR/fragments only: a FASTA file per length, and fragments.tsv with the labels"
    parser.add_argument("--fragments-only", action="store_true", help=text)
    options.add_json(parser)
    parser.set_defaults(**vars(Evaluation()))


def _add_tools(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("tools")
    text = "bundle (name or folder); repeat the option to compare bundles; default: mini"
    group.add_argument("-b", "--bundle", action="append", metavar="NAME", help=text)
    text = "evaluate the tables of --predictions only"
    group.add_argument("--no-bundle", action="store_true", help=text)
    text = (
        "table of another tool: geNomad, DeepVirFinder, Seeker, Jaeger, or columns seq_name and "
        "score; repeat the option for more tools, or more tables of one tool"
    )
    group.add_argument(
        "--predictions", type=_named, action="append", default=[], metavar="TOOL=FILE", help=text
    )
    text = "column with the scores of a tool (higher: viral); default: by the table's format"
    group.add_argument(
        "--score-column", type=_named, action="append", default=[], metavar="TOOL=COLUMN", help=text
    )
    text = "least score of a viral call of a tool; default: by the table's format, else 0.5"
    group.add_argument(
        "--call-threshold", type=_named, action="append", default=[], metavar="TOOL=X", help=text
    )
    text = (
        "rank of fragments without a score: mean (mean score of the others), lowest, or auto (mean "
        "for bundles, lowest for tables); default: %(default)s"
    )
    choices = ("auto", "mean", "lowest")
    group.add_argument("--unanswered", choices=choices, help=text)


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


def _add_statistics(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("statistics")
    text = (
        "share of viral sequences that precision, F1, MCC, FDR and ECE stand for; default: "
        "%(default)s"
    )
    group.add_argument("--prevalence", type=inner_share, metavar="P", help=text)
    text = "bootstrap resamples of groups; 0: no intervals; default: %(default)s"
    count, name = integer_from(0), "n_resamples"
    group.add_argument("--bootstrap", dest=name, type=count, metavar="N", help=text)


def _named(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not (name and equals and value) or not name.replace("-", "").replace("_", "").isalnum():
        raise argparse.ArgumentTypeError(
            f"{text!r} is not TOOL=VALUE, where TOOL is a name of letters, digits, - and _"
        )
    return name, value


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

    others = _others(arguments)
    if not arguments.fragments_only:
        require_extra("evaluate", "evaluate")
    evaluation = replace(
        Evaluation(**options.chosen(Evaluation, arguments)),
        sources=sources,
        bundles=() if arguments.no_bundle else tuple(arguments.bundle or Evaluation.bundles),
        others=others,
        excluded=read_regions(arguments.exclude),
        origin=_origin(arguments),
        tables=[*filter(None, (arguments.labels, arguments.groups, arguments.exclude))],
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
        print(as_text(comparison, arguments.prevalence))
    if not arguments.quiet:
        for path in written:
            if path.suffix != ".svg":
                say(f"written: {path}")
    return ExitCode.OK


def _sources(arguments: argparse.Namespace) -> "list[Source]":
    from virnucpro.lab.evaluation.labels import fasta_sources, read_groups, read_labels

    if options.are_labelled_files(arguments, "split", "viral_labels"):
        groups = read_groups(arguments.groups) if arguments.groups else None
        return fasta_sources(arguments.viral, arguments.non_viral, groups)
    if arguments.groups:
        raise UsageError("--groups is for --viral and --non-viral; --labels has a column group")
    return read_labels(arguments.labels, arguments.split, arguments.viral_labels or ())


def _others(arguments: argparse.Namespace) -> tuple[OtherTool, ...]:
    paths: dict[str, list[Path]] = defaultdict(list)
    for name, path in arguments.predictions:
        paths[name].append(Path(path))
    columns = _by_tool("--score-column", arguments.score_column, paths)
    limits = _by_tool("--call-threshold", arguments.call_threshold, paths)
    return tuple(
        OtherTool(name, tuple(given), columns.get(name), _number(name, limits.get(name)))
        for name, given in paths.items()
    )


def _by_tool(
    option: str, given: list[tuple[str, str]], known: dict[str, list[Path]]
) -> dict[str, str]:
    for name, _ in given:
        if name not in known:
            raise UsageError(
                f"{option} {name}: no --predictions has this name; the names: "
                f"{', '.join(known) or 'none'}"
            )
    return dict(given)


def _number(tool: str, text: str | None) -> float | None:
    if text is None:
        return None
    try:
        value = float(text)
    except ValueError:
        value = nan
    if not isfinite(value):
        raise UsageError(f"--call-threshold {tool}={text}: {text!r} is not a number")
    return value


def _origin(arguments: argparse.Namespace) -> dict[str, Any]:
    """Return the files and options that select the labelled sequences, for evaluation.json."""
    from virnucpro.bundles.checksums import file_digest

    files = {"labels": arguments.labels, "groups": arguments.groups, "exclude": arguments.exclude}
    return {
        **{
            name: {"path": str(path), "sha256": file_digest(path).sha256}
            for name, path in files.items()
            if path is not None
        },
        **({"split": arguments.split} if arguments.split else {}),
        **({"viral_labels": arguments.viral_labels} if arguments.viral_labels else {}),
        **({"viral": [*map(str, arguments.viral)]} if arguments.viral else {}),
        **({"non_viral": [*map(str, arguments.non_viral)]} if arguments.non_viral else {}),
    }


_ALL: Final = "all"
_COLUMNS: Final = {
    "auroc": "AUROC [95 %]",
    "auroc_scored": "scored only",
    "auprc": "AUPRC",
    "recall_at_fpr_1": "recall at 1 % FP",
    "recall_at_fpr_5": "at 5 % FP",
    "f1": "F1",
    "mcc": "MCC",
    "fdr": "FDR",
    "ece": "ECE",
}
_COMPARED: Final = ("auroc", "recall_at_fpr_5", "mcc")
_MOST_KINGDOMS: Final = 20
_FEW: Final = 20
_RULES: Final = {"mean": "at the mean score", "lowest": "below all scores"}


def as_text(comparison: "Comparison", prevalence: float) -> str:
    """Return the figures of all groups, the share called viral by kingdom, and the differences."""
    rows = [row for row in comparison.rows if row.kingdom == _ALL]
    rules = {f"{row.tool} {_RULES[row.unanswered]}": None for row in rows}
    head = ("tool", "length", "viral", "non-viral", "scored", *_COLUMNS.values())
    about = (
        f"kingdoms, and groups within a kingdom, count equally; viral share {prevalence:g}; "
        f"fragments without a score: {', '.join(rules)}"
    )
    lines = [
        about,
        *aligned([head, *map(_figures, rows)], right=set(range(1, len(head)))),
    ]
    title = f"share called viral (number of fragments if below {_FEW}):"
    lines += ["", title, *_called(comparison.rows)]
    if comparison.differences:
        lines += ["", "difference [95 %]:", *_differences(comparison.differences)]
    notes = {f"no intervals at {row.length}: {row.note}" for row in rows if row.note}
    return "\n".join([*lines, *sorted(notes)])


def _figures(row: "Row") -> tuple[str, ...]:
    total = row.counts["n_viral"] + row.counts["n_non_viral"]
    cells = [_decimal(row.values[name]) for name in _COLUMNS]
    cells[0] += _interval(row.intervals.get("auroc"))
    return (
        row.tool,
        row.length,
        f"{row.counts['n_viral']:,}",
        f"{row.counts['n_non_viral']:,}",
        f"{(total - row.counts['n_without_score']) / total:.1%}",
        *cells,
    )


def _called(rows: "Sequence[Row]") -> list[str]:
    """Return a table with a line per tool and kingdom, and a column per length."""
    lengths = list(dict.fromkeys(row.length for row in rows))
    shares: dict[tuple[str, str, str], dict[str, str]] = {}
    for row in rows:
        if row.group != _ALL:
            continue
        for label, short in (("viral", "viral"), ("non-viral", "non_viral")):
            if row.label in (_ALL, label):
                cell = _share(row.values[f"{short}_as_viral"], row.counts[f"n_{short}"])
                shares.setdefault((row.tool, label, row.kingdom), {})[row.length] = cell
    kingdoms = {name[1:] for name in shares if name[2] != _ALL}
    shown = [name for name in shares if name[2] == _ALL or len(kingdoms) <= _MOST_KINGDOMS]
    tools = list(dict.fromkeys(row.tool for row in rows))
    shown.sort(
        key=lambda name: (tools.index(name[0]), name[1] != "viral", name[2] != _ALL, name[2])
    )
    lines = [(*name, *(shares[name].get(length, "") for length in lengths)) for name in shown]
    head = ("tool", "label", "kingdom", *lengths)
    return aligned([head, *lines], right=set(range(3, len(head))))


def _differences(differences: "Sequence[Difference]") -> list[str]:
    cells: dict[tuple[str, str], dict[str, str]] = {}
    for difference in differences:
        if difference.kingdom == _ALL and difference.figure in _COMPARED:
            name = (f"{difference.tool} - {difference.reference}", difference.length)
            text = f"{difference.value:+.3f}" if not isnan(difference.value) else "NA"
            text += _interval(difference.interval, "+")
            cells.setdefault(name, {})[difference.figure] = text
    head = ("tools", "length", "AUROC", "recall at 5 % FP", "MCC")
    lines = [(*name, *(values[figure] for figure in _COMPARED)) for name, values in cells.items()]
    return aligned([head, *lines], right=set(range(1, len(head))))


def _interval(interval: tuple[float, float] | None, sign: str = "") -> str:
    if interval is None or isnan(interval[0]):
        return ""
    low, high = (format(value, f"{sign}.3f") for value in interval)
    return f" [{low}, {high}]"


def _decimal(value: float) -> str:
    return "NA" if isnan(value) else f"{value:.3f}"


def _share(value: float, count: int) -> str:
    return f"{value:.1%}" + (f" ({count})" if count < _FEW else "")

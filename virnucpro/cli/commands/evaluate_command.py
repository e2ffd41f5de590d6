"""Measure the accuracy of bundles and other tools on labelled sequences.

Cut viral and non-viral sequences into fragments, predict these with each bundle, and compare the
scores with the labels. DIR/evaluation.tsv has the figures by length, kingdom and group, with 95 %
intervals; DIR/paired.tsv the differences of tools; DIR/figures the curves. Kingdoms, and groups
within a kingdom, count equally. To compare another tool, write the fragments with --fragments-only,
run the tool on DIR/fragments/*.fa, and give its tables with --predictions.
"""

import argparse
import math
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from virnucpro.cli import options
from virnucpro.cli.exit_codes import ExitCode
from virnucpro.cli.progress import open_reporter
from virnucpro.cli.run_job import add_execution_options, execution_of
from virnucpro.console import say
from virnucpro.errors import UsageError

if TYPE_CHECKING:
    from virnucpro.evaluation.labels import Source
    from virnucpro.pipeline.evaluation.request import OtherTool

__all__ = ["add_options"]

_LENGTHS = "300,500,1000,3000,10000"


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command ``evaluate``."""
    _add_inputs(parser)
    options.add_outdir(parser, "DIR", "output folder")
    _add_tools(parser)
    _add_fragments(parser)
    _add_statistics(parser)
    options.add_precision(parser)
    add_execution_options(parser)
    text = "write DIR/fragments only: a FASTA file per length, and fragments.tsv with the labels"
    parser.add_argument("--fragments-only", action="store_true", help=text)
    options.add_json(parser)
    parser.set_defaults(run=_run)


def _add_inputs(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("labelled sequences")
    text = (
        "tab-separated table with the columns file (relative to the table), label (viral or "
        "non-viral), group (related sequences, such as a virus family), and optionally split, "
        "kingdom, record"
    )
    group.add_argument("--labels", type=Path, metavar="TSV", help=text)
    text = "use the rows of this split only; all: every row"
    group.add_argument("--split", metavar="NAME", help=text)
    text = "FASTA files of viral sequences, instead of --labels; each record is a group"
    group.add_argument("--viral", type=Path, nargs="+", default=(), metavar="FASTA", help=text)
    text = "FASTA files of non-viral sequences; each file counts as a kingdom"
    group.add_argument("--non-viral", type=Path, nargs="+", default=(), metavar="FASTA", help=text)
    text = "BED file (record, start, end) of regions without fragments, such as prophages of hosts"
    group.add_argument("--exclude", type=Path, metavar="BED", help=text)


def _add_tools(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("tools")
    text = "bundle (name or folder); repeat the option to compare bundles; default: mini"
    group.add_argument("-b", "--bundle", action="append", metavar="NAME", help=text)
    text = "evaluate the tables of --predictions only"
    group.add_argument("--no-bundle", action="store_true", help=text)
    text = (
        "table of another tool: geNomad, DeepVirFinder, Jaeger, or columns seq_name and score; "
        "repeat the option for more tools, or more tables of one tool"
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
    group.add_argument("--unanswered", choices=choices, default="auto", help=text)


def _add_fragments(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("fragments")
    text = "lengths in bases, or whole (records as they are), comma-separated; default: %(default)s"
    group.add_argument("--lengths", type=_lengths, default=_LENGTHS, metavar="LIST", help=text)
    text = "maximum fragments per group and length; default: %(default)s"
    group.add_argument("--per-group", type=options.positive, default=100, metavar="N", help=text)
    text = "maximum fragments per class and length; groups share it equally; default: %(default)s"
    group.add_argument("--per-class", type=options.positive, default=5000, metavar="N", help=text)
    text = "seed of fragments and resamples; default: %(default)s"
    group.add_argument("--seed", type=options.integer_from(0), default=1, metavar="N", help=text)


def _add_statistics(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("statistics")
    text = (
        "share of viral sequences that precision, F1, MCC, FDR and ECE stand for; default: "
        "%(default)s"
    )
    group.add_argument("--prevalence", type=_share, default=0.5, metavar="P", help=text)
    text = "bootstrap resamples of groups; 0: no intervals; default: %(default)s"
    group.add_argument(
        "--bootstrap", type=options.integer_from(0), default=1000, metavar="N", help=text
    )


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


def _share(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number between 0 and 1")
    return value


def _run(arguments: argparse.Namespace) -> int:
    sources = _sources(arguments)  # wrong usage is refused before h5py and torch are imported
    from virnucpro.cli.evaluation_text import as_text
    from virnucpro.evaluation.regions import read_regions
    from virnucpro.pipeline.evaluation.evaluate import evaluate, write_fragments
    from virnucpro.pipeline.evaluation.request import Evaluation, require_extra

    others = _others(arguments)
    if not arguments.fragments_only:
        require_extra()
    evaluation = Evaluation(
        sources=sources,
        bundles=() if arguments.no_bundle else tuple(arguments.bundle or ("mini",)),
        others=others,
        lengths=arguments.lengths,
        per_group=arguments.per_group,
        per_class=arguments.per_class,
        seed=arguments.seed,
        excluded={} if arguments.exclude is None else read_regions(arguments.exclude),
        prevalence=arguments.prevalence,
        n_resamples=arguments.bootstrap,
        unanswered=arguments.unanswered,
        precision=arguments.precision,
        origin=_origin(arguments),
    )
    execution = execution_of(arguments)
    with open_reporter(quiet=arguments.quiet) as reporter:
        if arguments.fragments_only:
            for path in write_fragments(evaluation, execution, reporter):
                print(path)
            return ExitCode.OK
        result = evaluate(evaluation, execution, reporter)
    if arguments.json:
        print((arguments.outdir / "evaluation.json").read_text(), end="")
    else:
        print(as_text(result.comparison, arguments.prevalence))
    if not arguments.quiet:
        for path in result.written:
            if path.suffix != ".svg":
                say(f"written: {path}")
    return ExitCode.OK


def _sources(arguments: argparse.Namespace) -> "list[Source]":
    from virnucpro.evaluation.labels import fasta_sources, read_labels

    files = bool(arguments.viral or arguments.non_viral)
    if files == (arguments.labels is not None):
        raise UsageError("give either --labels TSV, or both --viral FASTA and --non-viral FASTA")
    if files and arguments.split is not None:
        raise UsageError("--split selects rows of --labels; remove it, or give --labels")
    if files:
        return fasta_sources(arguments.viral, arguments.non_viral)
    return read_labels(arguments.labels, arguments.split)


def _others(arguments: argparse.Namespace) -> "tuple[OtherTool, ...]":
    from virnucpro.pipeline.evaluation.request import OtherTool

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
        value = math.nan
    if not math.isfinite(value):
        raise UsageError(f"--call-threshold {tool}={text}: {text!r} is not a number")
    return value


def _origin(arguments: argparse.Namespace) -> dict[str, Any]:
    """Return the files and options that select the labelled sequences, for evaluation.json."""
    from virnucpro.evaluation.tables import sha256_of

    files = {"labels": arguments.labels, "exclude": arguments.exclude}
    return {
        **{
            name: {"path": str(path), "sha256": sha256_of(path)}
            for name, path in files.items()
            if path is not None
        },
        **({"split": arguments.split} if arguments.split else {}),
        **({"viral": [str(path) for path in arguments.viral]} if arguments.viral else {}),
        **({"non_viral": [str(one) for one in arguments.non_viral]} if arguments.non_viral else {}),
    }

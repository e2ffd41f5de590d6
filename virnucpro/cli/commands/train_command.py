"""Train a classifier on labelled sequences.

Draw windows from the labelled genomes, encode them with encoders of bundles or a language model,
and train a classifier with calibrated probabilities. DIR/bundle is the new bundle: use it with
--bundle DIR/bundle.

The table of labels is tab-separated with the columns file (relative to the table), label (viral or
non-viral), group (related sequences have one group, such as a virus family) and optionally split,
kingdom, class (of a classifier with several) and record. No group may be on both sides of the
split. Without a table, give FASTA files with --viral and --non-viral. Sequences of different groups
that are nearly equal are refused.
"""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from virnucpro.cli import options
from virnucpro.cli.exit_codes import ExitCode
from virnucpro.errors import InputError
from virnucpro.extras import require_extra
from virnucpro.lab.training.settings import NetworkSettings
from virnucpro.option import integer_from, positive
from virnucpro.run.execution import Execution, RunOptions
from virnucpro.run.reporter import open_reporter

if TYPE_CHECKING:
    from virnucpro.lab.evaluation.labels import Source

_LEAST, _MOST = 60, 10_000
"""Allowed lengths of training windows in bases."""


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command ``train``."""
    _add_inputs(parser)
    options.add_outdir(parser, "DIR", "output folder")
    _add_model(parser)
    options.add(parser, NetworkSettings)
    text = "name of the new bundle; default: the name of DIR"
    parser.add_argument("--name", help=text)
    parser.add_argument("--description", default="trained by virnucpro train", help="one line")
    parser.add_argument("--bundle-version", default="1.0.0", metavar="V", help="default: 1.0.0")
    text = "Markdown file whose text is appended to the card; default: none"
    parser.add_argument("--notes", type=Path, metavar="FILE", help=text)
    text = "seed of windows, folds and initial weights; default: %(default)s"
    parser.add_argument("--seed", type=integer_from(0), default=1, metavar="N", help=text)
    options.add(parser, RunOptions)
    options.add_quiet(parser)


def _add_inputs(parser: argparse.ArgumentParser) -> None:
    text = "value of the column split whose rows are the training set; default: train"
    group = options.add_labelled(parser, text)
    text = (
        "value of the column split whose sequences must not be similar to the training set; "
        "default: valid, if there is such a row"
    )
    group.add_argument("--held-out", metavar="NAME", help=text)
    text = (
        "accept nearly equal sequences of different groups, or on both sides of the split, with a "
        "warning; default: refuse them"
    )
    group.add_argument("--allow-similar", action="store_true", help=text)


def _add_model(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("model")
    text = (
        "encoder of a bundle, as BUNDLE/VIEW, or Hugging Face folder (BERT, ESM, T5); repeat the "
        "option, or separate names by commas, for one nucleotide and one protein encoder; default: "
        "mini/nucleotide"
    )
    group.add_argument("-e", "--encoder", type=_names, action="extend", metavar="NAME", help=text)
    text = (
        "what the encoders read: window (whole windows, nucleotide encoders only) or "
        "longest_stretch (the longest stop-free stretch of a window); default: window, with a "
        "protein encoder longest_stretch"
    )
    choices = ("window", "longest_stretch")
    group.add_argument("--items", choices=choices, metavar="KIND", help=text)
    text = "shortest and longest training windows in bases; default: 150-1000"
    group.add_argument("--lengths", type=_lengths, metavar="BASES", help=text)
    text = (
        "do not train a record head, which judges whole records by their genes; default: train it "
        "for windows of composition"
    )
    group.add_argument("--no-records", dest="records", action="store_false", help=text)
    text = "length in bases of the bundle's windows; default: that of the first encoder's bundle"
    group.add_argument("--window", type=positive, metavar="BASES", help=text)


def _lengths(text: str) -> tuple[int, int]:
    words = text.split("-")
    numbers = [int(word) for word in words if word.isascii() and word.isdigit()]
    if len(words) != 2 or len(numbers) != 2 or not _LEAST <= numbers[0] <= numbers[1] <= _MOST:
        raise argparse.ArgumentTypeError(
            f"{text!r} are not lengths: give the shortest and the longest as 150-1000, of {_LEAST} "
            f"to {_MOST:,} bases"
        )
    return numbers[0], numbers[1]


def _names(text: str) -> list[str]:
    return text.split(",")


def read_notes(path: Path | None) -> str:
    """Return the text of the notes; "" without a file.

    Raises
    ------
    InputError
        If the file cannot be read.
    """
    if path is None:
        return ""
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: the notes cannot be read ({error})") from error


def run(arguments: argparse.Namespace) -> int:
    """Run the command ``train``; return its exit code."""
    sources, held_out = _sources(arguments)  # wrong usage is refused before torch is imported
    require_extra("models", "train")
    from virnucpro.lab.evaluation.input_table import read_regions
    from virnucpro.lab.training.draw import CROPS, Crops
    from virnucpro.lab.training.model import Training
    from virnucpro.lab.training.train import train_bundle

    given = {
        "sources": sources,
        "held_out": held_out,
        "excluded": read_regions(arguments.exclude),
        "encoders": arguments.encoder or ["mini/nucleotide"],
        "network": NetworkSettings(**options.chosen(NetworkSettings, arguments)),
        "name": arguments.name or arguments.outdir.absolute().name,
        "version": arguments.bundle_version,
        "notes": read_notes(arguments.notes),
        "tables": [*filter(None, (arguments.labels, arguments.exclude, arguments.notes))],
        "crops": Crops(arguments.lengths) if arguments.lengths else CROPS,
    }
    training = Training(**options.chosen(Training, arguments) | given)
    execution = Execution(**options.chosen(Execution, arguments))
    with open_reporter(quiet=arguments.quiet, force=execution.force) as reporter:
        if not arguments.labels:
            reporter.warn(
                "each record is a group of its own: if records are related, such as contigs of one "
                "genome, the figures of the cross-validation are too good; use --labels instead"
            )
        bundle = train_bundle(training, execution, reporter)
    print(bundle)
    return ExitCode.OK


def _sources(arguments: argparse.Namespace) -> "tuple[list[Source], list[Source]]":
    """Return the labelled sequences of the training set, and the held-out ones."""
    from virnucpro.lab.evaluation.labels import fasta_sources, read_labels, splits_in

    if options.are_labelled_files(arguments, "split", "held_out"):
        return fasta_sources(arguments.viral, arguments.non_viral), []
    splits = splits_in(arguments.labels)
    chosen = arguments.split or "train"
    held_out = arguments.held_out or ("valid" if "valid" in splits else None)
    table = arguments.labels
    return (
        read_labels(table, chosen if splits else None),
        read_labels(table, held_out, one_class=True) if held_out else [],
    )

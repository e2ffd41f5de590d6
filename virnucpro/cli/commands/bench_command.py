"""Measure the throughput of an encoder on this machine.

Encode synthetic sequences on one device. Print tokens and sequences per second, to size a job. Each
batch is measured at least three times, and the shortest time is used. A batch that takes more than
a minute is measured once. Exit code 1: the model does not fit into memory or cannot be read.
"""

import argparse
import json
from typing import TYPE_CHECKING

from virnucpro.cli import options
from virnucpro.cli.exit_codes import ExitCode
from virnucpro.console import say
from virnucpro.extras import require_extra
from virnucpro.lab.validation.options import BenchOptions
from virnucpro.option import seconds

if TYPE_CHECKING:
    from virnucpro.lab.validation.bench import EncoderFigures


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command ``bench``."""
    model = parser.add_mutually_exclusive_group()
    model.add_argument(
        "-m",
        "--model",
        default="esm2_t12_35M_UR50D",
        metavar="NAME",
        help="encoder of a published size, with random weights: esm2_t6_8M_UR50D, "
        "esm2_t12_35M_UR50D, esm2_t30_150M_UR50D, esm2_t33_650M_UR50D, esm2_t36_3B_UR50D, "
        "esm2_t48_15B_UR50D, "
        "dnabert_s; default: %(default)s",
    )
    text = "encoders of a bundle, such as mini, instead of random weights"
    model.add_argument("-b", "--bundle", action=options.Once, metavar="NAME", help=text)
    options.add_device(parser)
    parser.add_argument(
        "--lengths",
        metavar="KIND",
        help="sequence lengths: six-frame (frames of 500-base windows), or residues per "
        "sequence: a number N or a range A-B, such as 20-400; default: %(default)s",
    )
    text = "measurement time per encoder, without loading; default: %(default)g s"
    parser.add_argument("--seconds", type=seconds, metavar="SECONDS", help=text)
    options.add_json(parser)
    parser.set_defaults(**vars(BenchOptions()))


def run(arguments: argparse.Namespace) -> int:
    """Run the command ``bench``; return its exit code."""
    _check_names(arguments)
    require_extra("models", "bench")
    from virnucpro.lab.validation.bench import measure_bundle, measure_model
    from virnucpro.runtime.child import keep_freed_memory

    keep_freed_memory()  # the same setting as in a worker of a run
    settings = BenchOptions(**options.chosen(BenchOptions, arguments))
    if arguments.bundle is None:
        figures = measure_model(arguments.model, settings, say)
    else:
        figures = measure_bundle(arguments.bundle, settings, say)
    if arguments.json:
        print(json.dumps([figure.as_dict() for figure in figures], indent=2))
    else:
        print("\n\n".join(map(_as_text, figures)))
    return ExitCode.OK


def _check_names(arguments: argparse.Namespace) -> None:
    """Raise an error for invalid lengths, or an unknown model or bundle, before torch is loaded."""
    from virnucpro.bundles.bundle import find_bundle
    from virnucpro.encoders.registry import size_named
    from virnucpro.lab.validation.synthetic import parse_lengths

    parse_lengths(arguments.lengths)
    if arguments.bundle is None:
        size_named(arguments.model)
    else:
        find_bundle(arguments.bundle)


def _as_text(figures: "EncoderFigures") -> str:
    derived = figures.as_dict()
    measured = f"{figures.repeats:,} times or more" if figures.repeats > 1 else "once"
    return (
        f"{figures.encoder} on {figures.device}, {figures.precision}, "
        f"CPU threads: {figures.threads}\n"
        f"lengths {figures.lengths}, sequences: {figures.sequences:,}, "
        f"tokens: {figures.tokens:,}, batches of up to {figures.batch_tokens:,} tokens: "
        f"{figures.batches}, each measured {measured}\n"
        f"tokens/s     {derived['tokens_per_second']:10,.0f}\n"
        f"sequences/s  {derived['sequences_per_second']:10,.1f}"
    )

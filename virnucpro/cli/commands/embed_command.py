"""Embed whole sequences with one encoder.

Sequences are nucleotides or proteins, as the encoder requires. DIR/embeddings.h5 holds the vectors
in input order, DIR/sequences.tsv has one row per input sequence.
"""

import argparse

from virnucpro.cli import options
from virnucpro.cli.run_job import add_run_options, run_job

__all__ = ["add_options"]


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command ``embed``."""
    add_run_options(parser)
    options.add_encoder(parser, required=True)
    options.add_strict(parser)
    options.add_force_alphabet(parser)
    options.add_precision(parser)
    text = "floating-point precision of embeddings.h5; default: %(default)s"
    parser.add_argument("--embeddings", choices=("fp16", "fp32"), default="fp16", help=text)
    parser.set_defaults(run=_run)


def _run(arguments: argparse.Namespace) -> int:
    from virnucpro.pipeline.jobs.embed_job import embed_job

    return run_job(arguments, embed_job)

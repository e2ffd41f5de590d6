"""Embed whole sequences with one encoder.

Sequences are nucleotides or proteins, as the encoder requires. DIR/embeddings.h5 holds the vectors
in input order, DIR/sequences.tsv has one row per input sequence. docs/embeddings.md describes the
files, pooling, layers and long sequences.
"""

import argparse

from virnucpro.cli.run_job import add_job_options, run_job
from virnucpro.run.options import EmbedOptions


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command ``embed``."""
    add_job_options(parser, EmbedOptions, without=("report",))


def run(arguments: argparse.Namespace) -> int:
    """Run the command ``embed``; return its exit code."""
    from virnucpro.run.embed_job import embed_job

    return run_job(arguments, embed_job, EmbedOptions)

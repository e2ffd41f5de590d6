"""Identify viral sequences.

By default the bundle mini scores windows of each sequence by their composition (words of bases and
of peptides), in seconds on a CPU; other bundles, such as mini-deep, use language models.
DIR/predictions.tsv has one row per input sequence.
"""

import argparse

from virnucpro.cli.run_job import add_job_options, run_job
from virnucpro.run.options import PredictOptions


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command ``predict``."""
    add_job_options(parser, PredictOptions)


def run(arguments: argparse.Namespace) -> int:
    """Run the command ``predict``; return its exit code."""
    from virnucpro.run.predict_job import predict_job

    return run_job(arguments, predict_job, PredictOptions)

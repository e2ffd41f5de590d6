"""Identify viral sequences.

Cut sequences into windows, translate these in six frames, embed and score the frames without a stop
codon. DIR/predictions.tsv has one row per input sequence.
"""

import argparse

from virnucpro.cli import options
from virnucpro.cli.run_job import add_run_options, run_job

__all__ = ["add_options"]


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command ``predict``."""
    add_run_options(parser)
    options.add_bundle(parser)
    options.add_tiling(parser)
    options.add_fallback(parser)
    options.add_min_length(parser)
    options.add_strict(parser)
    options.add_calls(parser)
    options.add_extracts(parser)
    options.add_report(parser)
    options.add_precision(parser)
    options.add_stored_vectors(parser)
    parser.set_defaults(run=_run)


def _run(arguments: argparse.Namespace) -> int:
    from virnucpro.pipeline.predict import predict_job

    return run_job(arguments, predict_job)

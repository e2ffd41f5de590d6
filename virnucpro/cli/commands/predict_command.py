"""``virnucpro predict``: identify viral sequences."""

import argparse
from functools import partial
from typing import TYPE_CHECKING

from virnucpro.cli.commands.run_job import run_job
from virnucpro.cli.options import (
    add_bundle_option,
    add_execution_options,
    add_input_argument,
    add_numeric_options,
    add_tiling_options,
    job_options,
)

if TYPE_CHECKING:
    from virnucpro.pipeline.jobs.job import Job

__all__ = ["add_options"]


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the description and the options of the command."""
    parser.description = (
        "Cut sequences into windows, translate these in six frames, embed and score "
        "the frames without a stop codon. DIR/predictions.tsv has one row per input sequence."
    )
    add_input_argument(parser)
    add_execution_options(parser)
    add_bundle_option(parser)
    add_tiling_options(parser)
    add_numeric_options(parser, embeddings=("fp16", "fp32", "none"))
    parser.set_defaults(run=partial(run_job, job_of=_job))


def _job(arguments: argparse.Namespace) -> "Job":
    from virnucpro.pipeline.predict import predict_job

    return predict_job(arguments.inputs, **job_options(arguments))

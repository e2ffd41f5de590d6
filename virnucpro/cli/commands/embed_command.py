"""``virnucpro embed``: compute one embedding per sequence."""

import argparse
from functools import partial
from typing import TYPE_CHECKING

from virnucpro.cli.commands.run_job import run_job
from virnucpro.cli.options import (
    add_execution_options,
    add_input_argument,
    add_numeric_options,
)

if TYPE_CHECKING:
    from virnucpro.pipeline.jobs.job import Job

__all__ = ["add_options"]


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the description and the options of the command."""
    parser.description = (
        "Embed whole sequences with one encoder. Sequences are nucleotides or proteins, as the "
        "encoder requires. DIR/embeddings.h5 holds the vectors in input order, DIR/sequences.tsv "
        "has one row per input sequence."
    )
    add_input_argument(parser)
    add_execution_options(parser)
    parser.add_argument(
        "-e",
        "--encoder",
        required=True,
        metavar="NAME",
        help="encoder: BUNDLE/VIEW (mini/protein, mini/nucleotide), a fair-esm checkpoint "
        "(esm2_*.pt) or a DNABERT-S folder",
    )
    add_numeric_options(parser, embeddings=("fp16", "fp32"))
    parser.set_defaults(run=partial(run_job, job_of=_job))


def _job(arguments: argparse.Namespace) -> "Job":
    from virnucpro.pipeline.jobs.embed_job import embed_job

    return embed_job(
        arguments.inputs,
        encoder=arguments.encoder,
        precision=arguments.precision,
        embeddings=arguments.embeddings,
    )

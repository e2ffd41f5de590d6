"""``virnucpro embed``: one vector for each sequence."""

import argparse
from typing import TYPE_CHECKING, Any

from virnucpro.cli.options import (
    add_execution_options,
    add_input_argument,
    add_numeric_options,
)
from virnucpro.cli.run_job import run_job

if TYPE_CHECKING:
    from virnucpro.pipeline.job import Job

__all__ = ["add_parser"]


def add_parser(commands: Any) -> None:  # noqa: ANN401 - argparse keeps the type of subparsers private
    """Add the command and its options."""
    parser = commands.add_parser(
        "embed",
        help="one encoder's vector for each sequence",
        description="Embed whole sequences, bases or proteins as the encoder takes them: "
        "DIR/embeddings.h5 holds the vectors in input order, DIR/sequences.tsv one row for each "
        "input sequence.",
    )
    add_input_argument(parser)
    add_execution_options(parser)
    parser.add_argument(
        "-e",
        "--encoder",
        required=True,
        metavar="NAME",
        help="BUNDLE/VIEW (mini/protein, mini/nucleotide), a fair-esm checkpoint (esm2_*.pt), "
        "or a DNABERT-S folder",
    )
    add_numeric_options(parser, embeddings=("fp16", "fp32"))
    parser.set_defaults(run=_run)


def _run(arguments: argparse.Namespace) -> int:
    return run_job(arguments, _job)


def _job(arguments: argparse.Namespace) -> "Job":
    from virnucpro.pipeline.embed import embed_job

    return embed_job(
        arguments.inputs,
        encoder=arguments.encoder,
        precision=arguments.precision,
        embeddings=arguments.embeddings,
    )

"""``virnucpro predict``: which sequences are viral."""

import argparse
from typing import TYPE_CHECKING, Any

from virnucpro.cli.options import (
    a_name,
    add_execution_options,
    add_input_argument,
    add_numeric_options,
    add_tiling_options,
)
from virnucpro.cli.run_job import run_job

if TYPE_CHECKING:
    from virnucpro.pipeline.job import Job

__all__ = ["add_parser"]


def add_parser(commands: Any) -> None:  # noqa: ANN401 - argparse keeps the type of subparsers private
    """Add the command and its options."""
    parser = commands.add_parser(
        "predict",
        help="tell viral from non-viral sequences",
        description="Cut sequences into windows, translate them in six frames, embed and score "
        "what has no stop: one row for each input sequence in DIR/predictions.tsv.",
    )
    add_input_argument(parser)
    add_execution_options(parser)
    parser.add_argument(
        "-b",
        "--bundle",
        type=a_name,
        default="mini",
        metavar="NAME",
        help="encoders and classifier: a name (virnucpro bundle list) or a folder; "
        "default: %(default)s",
    )
    add_tiling_options(parser)
    add_numeric_options(parser, embeddings=("fp16", "fp32", "none"))
    parser.set_defaults(run=_run)


def _run(arguments: argparse.Namespace) -> int:
    return run_job(arguments, _job)


def _job(arguments: argparse.Namespace) -> "Job":
    from virnucpro.pipeline.predict import predict_job

    return predict_job(
        arguments.inputs,
        bundle=arguments.bundle,
        window=arguments.window,
        tiling=arguments.tiling,
        genetic_code=arguments.genetic_code,
        precision=arguments.precision,
        embeddings=arguments.embeddings,
    )

"""``virnucpro predict``: which sequences are viral."""

import argparse
from typing import Any

from virnucpro.cli.exit_codes import ExitCode
from virnucpro.cli.options import (
    add_execution_options,
    add_input_argument,
    add_numeric_options,
    add_tiling_options,
    execution_of,
)
from virnucpro.cli.progress import open_reporter

__all__ = ["add_parser"]


def add_parser(commands: Any) -> None:  # noqa: ANN401 - argparse keeps the type of subparsers private
    """Add the command and its options."""
    parser = commands.add_parser(
        "predict",
        help="tell viral from non-viral sequences",
        description="Cut sequences into windows, translate, embed, score: one row for each "
        "input sequence in DIR/predictions.tsv.",
    )
    add_input_argument(parser)
    add_execution_options(parser)
    parser.add_argument(
        "-b",
        "--bundle",
        default="mini",
        metavar="NAME",
        help="encoders and classifier: a name (virnucpro bundle list) or a folder; "
        "default: %(default)s",
    )
    add_tiling_options(parser)
    add_numeric_options(parser, embeddings=("fp16", "fp32", "none"))
    parser.set_defaults(run=_run)


def _run(arguments: argparse.Namespace) -> int:
    from virnucpro.pipeline.ahead import ranks_ahead

    execution = execution_of(arguments)
    with ranks_ahead(arguments.inputs, execution) as standby:
        from virnucpro.pipeline.precision import with_precision
        from virnucpro.pipeline.predict import predict, predict_job

        job = predict_job(
            arguments.inputs,
            bundle=arguments.bundle,
            window=arguments.window,
            tiling=arguments.tiling,
            genetic_code=arguments.genetic_code,
            embeddings=arguments.embeddings,
        )
        with open_reporter(arguments.outdir, quiet=arguments.quiet) as reporter:
            job = with_precision(job, arguments.precision, execution, reporter)
            outcome = predict(job, execution, reporter, standby)
            reporter.finish(outcome)
    return ExitCode.OK if outcome.complete else ExitCode.PARTIAL

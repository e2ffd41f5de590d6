"""``virnucpro embed``: one vector for each sequence."""

import argparse
from typing import Any

from virnucpro.cli.exit_codes import ExitCode
from virnucpro.cli.options import (
    add_execution_options,
    add_input_argument,
    add_numeric_options,
    execution_of,
)
from virnucpro.cli.progress import open_reporter

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
    from virnucpro.pipeline.ahead import ranks_ahead

    execution = execution_of(arguments)
    with ranks_ahead(arguments.inputs, execution) as standby:
        from virnucpro.pipeline.embed import embed, embed_job
        from virnucpro.pipeline.precision import with_precision

        job = embed_job(
            arguments.inputs,
            encoder=arguments.encoder,
            embeddings=arguments.embeddings,
        )
        with open_reporter(arguments.outdir, quiet=arguments.quiet) as reporter:
            job = with_precision(job, arguments.precision, execution, reporter)
            outcome = embed(job, execution, reporter, standby)
            reporter.finish(outcome)
    return ExitCode.OK if outcome.complete else ExitCode.PARTIAL

"""``virnucpro frames``: windows and stop-free frames as FASTA, nothing embedded."""

import argparse
from typing import Any

from virnucpro.cli.exit_codes import ExitCode
from virnucpro.cli.options import a_path, add_input_argument, add_tiling_options

__all__ = ["add_parser"]


def add_parser(commands: Any) -> None:  # noqa: ANN401 - argparse keeps the type of subparsers private
    """Add the command and its options."""
    parser = commands.add_parser(
        "frames",
        help="windows and stop-free frames as FASTA",
        description="Write, for each input file, DIR/{stem}_chunked{L}.fa (windows), "
        "{stem}_identified_nucleotide.fa and {stem}_identified_protein.faa (stop-free frames); L "
        "is the length of a window.",
    )
    add_input_argument(parser)
    parser.add_argument(
        "-o", "--outdir", type=a_path, required=True, metavar="DIR", help="folder for the files"
    )
    add_tiling_options(parser, default="%(default)s")
    parser.add_argument("--force", action="store_true", help="replace files that are there")
    parser.set_defaults(run=_run, window=500, tiling="published", genetic_code=1)


def _run(arguments: argparse.Namespace) -> int:
    from virnucpro.pipeline.jobs.write_frames import write_frames

    for path in write_frames(
        arguments.inputs,
        arguments.outdir,
        window=arguments.window,
        tiling=arguments.tiling,
        genetic_code=arguments.genetic_code,
        force=arguments.force,
    ):
        print(path)
    return ExitCode.OK

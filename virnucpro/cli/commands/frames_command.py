"""Write windows and stop-free reading frames as FASTA.

For each input file NAME.fa, write windows of L bases to DIR/NAME_chunkedL.fa, and the reading
frames without a stop codon to DIR/NAME_identified_nucleotide.fa and
DIR/NAME_identified_protein.faa. No embeddings are computed.
"""

import argparse

from virnucpro.cli.exit_codes import ExitCode
from virnucpro.cli.options import add_input_argument, add_outdir_option, add_tiling_options

__all__ = ["add_options"]


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command."""
    add_input_argument(parser)
    add_outdir_option(parser, "DIR", "output folder")
    add_tiling_options(parser, default="%(default)s")
    parser.add_argument("--force", action="store_true", help="replace existing files")
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

"""Write windows and stop-free reading frames as FASTA.

For each input file NAME.fa, write windows of L bases to DIR/NAME_chunkedL.fa, and the reading
frames without a stop codon to DIR/NAME_identified_nucleotide.fa and
DIR/NAME_identified_protein.faa. No embeddings are computed.
"""

import argparse

from virnucpro.cli import options
from virnucpro.cli.exit_codes import ExitCode

__all__ = ["add_options"]


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command ``frames``."""
    options.add_inputs(parser)
    options.add_outdir(parser, "DIR", "output folder")
    options.add_tiling(parser, default="%(default)s")
    options.add_strict(parser)
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
        strict=bool(arguments.strict),
    ):
        print(path)
    return ExitCode.OK

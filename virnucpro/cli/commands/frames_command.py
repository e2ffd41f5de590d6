"""Write windows and stop-free reading frames as FASTA.

For each input file NAME.fa, write windows of L bases to DIR/NAME_chunkedL.fa, and the reading
frames without a stop codon to DIR/NAME_identified_nucleotide.fa and
DIR/NAME_identified_protein.faa. No embeddings are computed. Codons with N and other ambiguous
letters are left out of the protein, as in the published tool.
"""

import argparse

from virnucpro.cli import options
from virnucpro.cli.exit_codes import ExitCode
from virnucpro.run.options import FramesOptions


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command ``frames``."""
    options.add_inputs(parser)
    options.add_outdir(parser, "DIR", "output folder")
    options.add(parser, FramesOptions)


def run(arguments: argparse.Namespace) -> int:
    """Run the command ``frames``; return its exit code."""
    from virnucpro.run.write_frames import write_frames

    given = FramesOptions(**options.chosen(FramesOptions, arguments))
    for path in write_frames(arguments.inputs, arguments.outdir, given):
        print(path)
    return ExitCode.OK

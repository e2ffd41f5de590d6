"""Embed whole sequences with one encoder.

Sequences are nucleotides or proteins, as the encoder requires. DIR/embeddings.h5 holds the vectors
in input order, DIR/sequences.tsv has one row per input sequence. docs/embeddings.md describes the
files, pooling, layers and long sequences.
"""

import argparse
from functools import partial

from virnucpro.cli import options
from virnucpro.cli.run_job import add_run_options, run_job

__all__ = ["add_options"]


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command ``embed``."""
    add_run_options(parser)
    options.add_encoder(parser, required=True)
    options.add_strict(parser)
    options.add_force_alphabet(parser)
    options.add_precision(parser)
    text = "floating-point precision of embeddings.h5; default: %(default)s"
    parser.add_argument("--embeddings", choices=("fp16", "fp32"), default="fp16", help=text)
    _add_pooling(parser)
    text = (
        "further formats of the vectors, separated by commas: npy (with embeddings.items.tsv), "
        "parquet, h5ad, pt (a file per sequence, as esm-extract); default: h5, which is always "
        "written"
    )
    parser.add_argument("--format", metavar="LIST", help=text)
    parser.set_defaults(run=_run)


def _add_pooling(parser: argparse.ArgumentParser) -> None:
    """Add the options that turn tokens into vectors; a resume needs equal values."""
    group = parser.add_argument_group("vectors")
    group.add_argument(
        "--pooling",
        choices=("mean", "cls", "max", "none"),
        default="mean",
        help="vector of a sequence: mean or maximum over its tokens, or the first special token; "
        "none: one vector per token (residue); default: %(default)s",
    )
    group.add_argument(
        "--layer",
        type=int,
        action="append",
        default=[],
        metavar="N",
        help="layer of the vectors, 0 (embeddings) to the number of layers, or negative from the "
        "last layer, -1; repeat the option to join several layers; default: -1",
    )
    group.add_argument(
        "--max-length",
        type=options.positive,
        metavar="TOKENS",
        help="maximum tokens (residues for a protein model) of a sequence, without special tokens; "
        "default: no limit but that of the model",
    )
    group.add_argument(
        "--long",
        choices=("truncate", "chunk-mean", "refuse"),
        default="refuse",
        help="longer sequences: use their first tokens, use the mean of chunks, or list them in "
        "quarantine.tsv without a vector; default: %(default)s",
    )


def _run(arguments: argparse.Namespace) -> int:
    from virnucpro.encoders.pooling import Pooling
    from virnucpro.pipeline.jobs.embed_job import embed_job
    from virnucpro.store.exports.formats import parse_formats

    pooling = Pooling(
        arguments.pooling, tuple(arguments.layer), arguments.max_length, arguments.long
    )
    formats = None if arguments.format is None else parse_formats(arguments.format)
    return run_job(arguments, partial(embed_job, pooling=pooling, formats=formats))

"""``virnucpro parity``: whether this device and precision give the numbers that they should."""

import argparse
import json
from typing import TYPE_CHECKING, Any

from virnucpro.cli.exit_codes import ExitCode
from virnucpro.cli.options import a_name, add_device_options, positive
from virnucpro.cli.tables import aligned
from virnucpro.console import say

if TYPE_CHECKING:
    from virnucpro.pipeline.validation.parity import Parity

__all__ = ["add_parser"]


def add_parser(commands: Any) -> None:  # noqa: ANN401 - argparse keeps the type of subparsers private
    """Add the command and its options."""
    parser = commands.add_parser(
        "parity",
        help="whether this device and precision give the right numbers",
        description="Encode sequences in batches on one device at one precision, and one by one "
        "on the CPU at fp32; tell how vectors and scores differ. On the CPU at fp32 this very "
        "program is compared with itself: what that shows is that batches change nothing, not "
        "that the numbers are right (`bundle verify --golden` is for that). Tolerated at fp32: "
        "errors of up to 1e-5 (as a share of the channel's largest number where that is above 1), "
        "and of 1e-4 in a score. Tolerated at fp16 and bf16: cosines from 0.9999 and 0.999, shifts "
        "(a vector's error as a share of how far vectors are apart) of up to 0.05 and 0.25, errors "
        "of up to 0.01 and 0.05 in a score. At each of them a label may flip where the two scores "
        "lie nearer to each other than rounding moves them. Exit code 0: all within; 1: not.",
    )
    model = parser.add_mutually_exclusive_group()
    model.add_argument(
        "-b",
        "--bundle",
        type=a_name,
        default="mini",
        metavar="NAME",
        help="encoders and classifier; default: %(default)s",
    )
    model.add_argument(
        "-e",
        "--encoder",
        metavar="NAME",
        help="one encoder: BUNDLE/VIEW (mini/protein, mini/nucleotide), a fair-esm checkpoint "
        "(esm2_*.pt), or a DNABERT-S folder",
    )
    add_device_options(parser)
    parser.add_argument(
        "--fasta",
        metavar="FILE",
        help="compare sequences of all lengths from this file; default: made-up ones",
    )
    parser.add_argument(
        "-n",
        "--sequences",
        type=positive,
        default=64,
        metavar="N",
        help="how many sequences to compare, up to 100,000; default: %(default)s",
    )
    parser.add_argument("--json", action="store_true", help="print JSON for a machine")
    parser.set_defaults(run=_run)


def _run(arguments: argparse.Namespace) -> int:
    from virnucpro.bundles.bundle import find_bundle

    if arguments.encoder is None:
        find_bundle(arguments.bundle)  # before torch is imported for nothing
    from virnucpro.pipeline.validation.parity import parity_of_bundle, parity_of_encoder

    options = {
        "device": arguments.device,
        "precision": arguments.precision,
        "fasta": arguments.fasta,
        "n_sequences": arguments.sequences,
        "threads": arguments.threads,
    }
    if arguments.encoder is None:
        parity = parity_of_bundle(arguments.bundle, **options)
    else:
        parity = parity_of_encoder(arguments.encoder, **options)
    print(json.dumps(parity.as_dict(), indent=2) if arguments.json else _as_text(parity))
    compared = max(one.n for one in parity.encoders)
    if compared < arguments.sequences:
        say(
            f"{arguments.fasta} holds {compared:,} items, not {arguments.sequences:,}: "
            "all of them were compared"
        )
    return ExitCode.OK if parity.agrees else ExitCode.FAILED


def _as_text(parity: "Parity") -> str:
    head = (
        "what", "n", "not finite", "least cosine", "median", "largest error", "shift", "scale",
        "tolerated", "verdict",
    )  # fmt: skip
    rows = [
        (
            one.encoder,
            f"{one.n:,}",
            f"{one.not_finite:,}",
            f"{one.least_cosine:.7f}",
            f"{one.median_cosine:.7f}",
            f"{one.largest_error:.2e}",
            f"{one.largest_shift:.2e}",
            f"{one.scale:.3g}",
            one.tolerance,
            _verdict(agrees=one.agrees),
        )
        for one in parity.encoders
    ]
    if (scores := parity.head) is not None:
        flips = (
            f"error <= {scores.tolerated:g}; {scores.flips:,} labels flip, "
            f"{scores.explained:,} by rounding"
        )
        rows.append(
            (
                "scores",
                f"{scores.n:,}",
                f"{scores.not_finite:,}",
                "",
                "",
                f"{scores.largest_error:.2e}",
                "",
                "1",
                flips,
                _verdict(agrees=scores.agrees),
            )
        )
    title = f"{parity.model} on {parity.device} at {parity.precision}, against the CPU at fp32"
    return "\n".join([title, *aligned([head, *rows], right=set(range(1, 8)))])


def _verdict(*, agrees: bool) -> str:
    return "agrees" if agrees else "DIFFERS"

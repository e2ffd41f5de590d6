"""Compare the numbers of a device and a precision with fp32 on the CPU.

Encode the same sequences twice: in batches on one device at one precision, and one by one on the
CPU at fp32. Print the differences of vectors and scores. On the CPU at fp32 the command compares
batches with single sequences only; to compare with recorded vectors, use virnucpro bundle verify
--golden.

Limits at fp32: error 1e-5, score error 1e-4. At fp16: cosine at least 0.9999, shift 0.05, score
error 0.01. At bf16: cosine at least 0.999, shift 0.25, score error 0.05. Error: largest difference
between two numbers of the vectors. It is divided by the largest number in this position of all
vectors, if that number is above 1. Shift: difference between the two vectors of a sequence, divided
by the spread (standard deviation) of the vectors of different sequences. The label of a sequence
may change if its two scores differ by less than the score error.

Exit code 0: all differences are within the limits;
1: a difference exceeds its limit.
"""

import argparse
import json
from collections.abc import Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from virnucpro.cli import options
from virnucpro.cli.exit_codes import ExitCode
from virnucpro.cli.tables import aligned
from virnucpro.console import say
from virnucpro.extras import require_extra
from virnucpro.lab.validation.options import ParityOptions
from virnucpro.option import positive

if TYPE_CHECKING:
    from virnucpro.lab.validation.parity import Parity

_COLUMNS = {
    "n": ("n", ","),
    "not_finite": ("not finite", ","),
    "least_cosine": ("least cosine", ".7f"),
    "median_cosine": ("median", ".7f"),
    "largest_error": ("largest error", ".2e"),
    "largest_shift": ("shift", ".2e"),
    "scale": ("scale", ".3g"),
}
"""Measured value -> title and number format of its column."""


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command ``parity``."""
    model = parser.add_mutually_exclusive_group()
    model.add_argument(
        "-b", "--bundle", action=options.Once, metavar="NAME", help="bundle; default: %(default)s"
    )
    text = "encoder instead of a bundle, as for virnucpro embed"
    model.add_argument("-e", "--encoder", metavar="NAME", help=text)
    options.add_device(parser)
    text = "file with the sequences to compare; default: synthetic sequences"
    parser.add_argument("--fasta", metavar="FILE", help=text)
    text = "number of sequences to compare, up to 100,000; default: %(default)s"
    parser.add_argument(
        "-n", "--sequences", dest="n_sequences", type=positive, metavar="N", help=text
    )
    options.add_json(parser)
    parser.set_defaults(**vars(ParityOptions()))


def run(arguments: argparse.Namespace) -> int:
    """Run the command ``parity``; return its exit code."""
    from virnucpro.bundles.bundle import find_bundle

    chosen = ParityOptions(**options.chosen(ParityOptions, arguments))
    if chosen.encoder is None:
        find_bundle(arguments.bundle)  # an unknown name is refused before torch is imported
    require_extra("models", "parity")
    from virnucpro.lab.validation.parity import measure_parity

    parity = measure_parity(chosen)
    print(json.dumps(parity.as_dict(), indent=2) if arguments.json else _as_text(parity))
    compared = max(agreement.n for agreement in parity.encoders)
    if compared < chosen.n_sequences:
        say(
            f"{chosen.fasta} has only {compared:,} items, but {chosen.n_sequences:,} were "
            "requested. All items of the file were compared."
        )
    return ExitCode.OK if parity.agrees else ExitCode.FAILED


def _as_text(parity: "Parity") -> str:
    rows = [
        _row(agreement.encoder, asdict(agreement), agreement.tolerance, agrees=agreement.agrees)
        for agreement in parity.encoders
    ]
    if (scores := parity.head) is not None:
        tolerance = (
            f"error <= {scores.tolerated:g}; {scores.flips:,} labels differ, "
            f"{scores.explained:,} by rounding"
        )
        rows.append(_row("scores", asdict(scores) | {"scale": 1}, tolerance, agrees=scores.agrees))
    head = ("what", *(title for title, _ in _COLUMNS.values()), "tolerated", "verdict")
    title = (
        f"{parity.model} on {parity.device} at {parity.precision}, compared with the CPU at fp32"
    )
    return "\n".join([title, *aligned([head, *rows], right=set(range(1, 8)))])


def _row(name: str, figures: Mapping[str, Any], tolerance: str, *, agrees: bool) -> tuple[str, ...]:
    cells = (
        format(figures[key], form) if key in figures else "" for key, (_, form) in _COLUMNS.items()
    )
    return (name, *cells, tolerance, "agrees" if agrees else "DIFFERS")

"""Measure the throughput of encoders on this machine, or check their numbers.

Encode synthetic sequences on one device. Print tokens and sequences per second, to size a job. The
shortest time of each batch is used.

With --parity, encode the same sequences in batches on this device and one by one on the CPU at
fp32, and print the differences of vectors and scores. Limits at fp32: error 1e-5, score error 1e-4.
At fp16: cosine at least 0.9999, shift 0.05, score error 0.01. At bf16: cosine at least 0.999, shift
0.25, score error 0.05. Error: largest difference between two numbers, divided by the largest number
in this position of all vectors, if that number is above 1. Shift: difference between the two
vectors of a sequence, divided by the spread (standard deviation) of the vectors of different
sequences. To compare with recorded vectors, use virnucpro bundle verify --golden.

Exit code 1: a difference exceeds its limit, or the model cannot be used.
"""

import argparse
import json

from virnucpro.cli import options
from virnucpro.cli.exit_codes import ExitCode
from virnucpro.cli.tables import aligned
from virnucpro.extras import require_extra
from virnucpro.lab.validation.options import BenchOptions
from virnucpro.option import positive, seconds


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command ``bench``."""
    model = parser.add_mutually_exclusive_group()
    model.add_argument(
        "-b", "--bundle", action=options.Once, metavar="NAME", help="bundle; default: %(default)s"
    )
    text = "encoder instead of a bundle, as for virnucpro embed"
    model.add_argument("-e", "--encoder", metavar="NAME", help=text)
    options.add_device(parser)
    parser.add_argument(
        "--lengths",
        metavar="KIND",
        help="sequence lengths: six-frame (frames of 500-base windows), or residues per "
        "sequence: a number N or a range A-B, such as 20-400; default: %(default)s",
    )
    text = "measurement time per encoder, without loading; default: %(default)g s"
    parser.add_argument("--seconds", type=seconds, metavar="SECONDS", help=text)
    text = "compare the numbers with those of the CPU at fp32, instead of measuring the time"
    parser.add_argument("--parity", action="store_true", help=text)
    text = "number of sequences for --parity; default: %(default)s"
    parser.add_argument(
        "-n", "--sequences", dest="n_sequences", type=positive, metavar="N", help=text
    )
    options.add_json(parser)
    parser.set_defaults(**vars(BenchOptions()))


def run(arguments: argparse.Namespace) -> int:
    """Run the command ``bench``; return its exit code."""
    from virnucpro.bundles.bundle import find_bundle
    from virnucpro.lab.validation.synthetic import parse_lengths

    chosen = BenchOptions(**options.chosen(BenchOptions, arguments))
    parse_lengths(chosen.lengths)  # wrong usage is refused before torch is imported
    if chosen.encoder is None:
        find_bundle(arguments.bundle)
    require_extra("models", "bench")
    if arguments.parity:
        from virnucpro.lab.validation.parity import measure_parity

        agreements = measure_parity(chosen)
        _show([agreement._asdict() for agreement in agreements], as_json=arguments.json)
        agrees = all(agreement.agrees for agreement in agreements)
        return ExitCode.OK if agrees else ExitCode.FAILED
    from virnucpro.lab.validation.bench import measure_throughput
    from virnucpro.runtime.child import keep_freed_memory

    keep_freed_memory()  # the same setting as in a worker of a run
    _show([figures._asdict() for figures in measure_throughput(chosen)], as_json=arguments.json)
    return ExitCode.OK


def _show(rows: list[dict[str, object]], *, as_json: bool) -> None:
    if as_json:
        print(json.dumps(rows, indent=2))
        return
    cells = [tuple(map(_cell, row.values())) for row in rows]
    head = tuple(name.replace("_", " ") for name in rows[0])
    print("\n".join(aligned([head, *cells], right=set(range(1, len(head))))))


def _cell(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "NO"
    return f"{value:,.7g}" if isinstance(value, int | float) else str(value)

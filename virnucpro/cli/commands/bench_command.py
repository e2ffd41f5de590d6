"""``virnucpro bench``: how fast this machine is, without a download."""

import argparse
import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from virnucpro.cli.exit_codes import ExitCode
from virnucpro.cli.options import a_name, add_device_options, seconds
from virnucpro.cli.tables import aligned
from virnucpro.console import say

if TYPE_CHECKING:
    from virnucpro.pipeline.validation.bench import EncoderFigures

__all__ = ["add_parser"]

_ONCE = "a lower bound: a batch that takes more than a minute is measured once"


def add_parser(commands: Any) -> None:  # noqa: ANN401 - argparse keeps the type of subparsers private
    """Add the command and its options."""
    parser = commands.add_parser(
        "bench",
        help="how fast this machine is",
        description="Let an encoder encode made-up sequences on one device, and tell tokens and "
        "sequences a second, the share of what matrix products of a layer's shapes reach on this "
        "very device (their ceiling: by torch.mm or with weights laid out once, whichever is "
        "faster, in turns with the batches), and where the time goes. Each "
        "batch counts at its fastest of three times or more, whatever --seconds says; one that "
        "takes longer than a minute is done once. Exit code 1: the model does not fit, or cannot "
        "be opened.",
    )
    model = parser.add_mutually_exclusive_group()
    model.add_argument(
        "-m",
        "--model",
        default="esm2_t12_35M_UR50D",
        metavar="NAME",
        help="random weights of a published size: esm2_t6_8M_UR50D, esm2_t12_35M_UR50D, "
        "esm2_t30_150M_UR50D, esm2_t33_650M_UR50D, esm2_t36_3B_UR50D, esm2_t48_15B_UR50D, "
        "dnabert_s; default: %(default)s",
    )
    model.add_argument(
        "-b", "--bundle", type=a_name, metavar="NAME", help="the encoders of a bundle, such as mini"
    )
    add_device_options(parser)
    parser.add_argument(
        "--lengths",
        default="six-frame",
        metavar="KIND",
        help="six-frame (frames of windows of 500 bases), or residues: N or A-B, such as 20-400; "
        "default: %(default)s",
    )
    parser.add_argument(
        "--seconds",
        type=seconds,
        default=20.0,
        metavar="S",
        help="for each encoder, besides its loading; default: %(default)g",
    )
    parser.add_argument("--json", action="store_true", help="print JSON for a machine")
    parser.set_defaults(run=_run)


def _run(arguments: argparse.Namespace) -> int:
    _refuse_what_nobody_knows(arguments)  # before torch is imported for nothing
    from virnucpro.pipeline.validation.bench import Measuring, measure_bundle, measure_model
    from virnucpro.runtime.child import keep_freed_memory

    keep_freed_memory()  # as a run's ranks do
    measuring = Measuring(
        device=arguments.device,
        precision=arguments.precision,
        threads=arguments.threads,
        lengths=arguments.lengths,
        seconds=arguments.seconds,
    )
    if arguments.bundle is None:
        figures = [measure_model(arguments.model, measuring, say)]
    else:
        figures = measure_bundle(arguments.bundle, measuring, say)
    if arguments.json:
        print(json.dumps([one.as_dict() for one in figures], indent=2))
    else:
        print("\n\n".join(_as_text(one) for one in figures))
    return ExitCode.OK


def _refuse_what_nobody_knows(arguments: argparse.Namespace) -> None:
    from virnucpro.bundles.bundle import find_bundle
    from virnucpro.encoders.registry import size_named
    from virnucpro.pipeline.validation.synthetic import range_of

    range_of(arguments.lengths)
    if arguments.bundle is None:
        size_named(arguments.model)
    else:
        find_bundle(arguments.bundle)


def _as_text(figures: "EncoderFigures") -> str:
    threads = f", {figures.threads} CPU threads" if figures.threads > 1 else ", 1 CPU thread"
    total = sum(figures.seconds.values())
    once = figures.turns == 1
    linear, attention = figures.linear_operations, figures.attention_operations
    rows = [
        ("tokens/s", f"{figures.tokens_per_second:,.0f}", ""),
        ("sequences/s", f"{figures.sequences_per_second:,.1f}", ""),
        (
            "operations a token",
            f"{(linear + attention) / 1e6:,.1f} M",
            f"matrix products {linear / 1e6:,.1f} M, attention {attention / 1e6:,.1f} M",
        ),
        ("the model's rate", f"{figures.rate / 1e9:,.1f} GFLOP/s", "while it computes"),
        ("ceiling", f"{figures.ceiling / 1e9:,.1f} GFLOP/s", _ceilings(figures.ceilings)),
        ("share of the ceiling", f"{figures.share_of_ceiling:.1%}", _ONCE if once else ""),
        *(
            (f"time to {stage}", f"{spent / total:.2%}", f"{spent:.3f} s")
            for stage, spent in figures.seconds.items()
        ),
    ]
    room = figures.batches * figures.batch_tokens
    longer = ", or of one sequence that is longer" if figures.tokens > room else ""
    title = f"{figures.encoder} on {figures.device}, {figures.precision}{threads}"
    what = (
        f"lengths {figures.lengths}: {_counted(figures.sequences, 'sequence')}, "
        f"{_counted(figures.tokens, 'token')} in {_counted(figures.batches, 'batch', 'batches')} "
        f"of up to {figures.batch_tokens:,}{longer} ({figures.unused:.1%} left unused), each done "
        f"{'once' if once else f'{figures.turns:,} times or more'}"
    )
    return "\n".join([title, what, *aligned(rows, right={1})])


def _ceilings(rates: Mapping[str, float]) -> str:
    """Say what multiplies at the highest rate, and at which rate anything else does."""
    best, *others = sorted(rates, key=rates.__getitem__, reverse=True)
    rest = "".join(f" ({one}: {rates[one] / 1e9:,.1f})" for one in others)
    return f"{best}, at a layer's shapes{rest}"


def _counted(n: int, one: str, many: str | None = None) -> str:
    return f"{n:,} {one if n == 1 else many or f'{one}s'}"

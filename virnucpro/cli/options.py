"""Options that several commands share."""

import argparse
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from virnucpro.machine import usable_cpus
from virnucpro.pipeline.execution import Execution

__all__ = [
    "a_name",
    "a_path",
    "add_bundle_option",
    "add_device_options",
    "add_execution_options",
    "add_input_argument",
    "add_numeric_options",
    "add_quiet_option",
    "add_threads_option",
    "add_tiling_options",
    "add_timeout_option",
    "execution_of",
    "job_options",
    "positive",
    "seconds",
]

_PRECISIONS = ("auto", "fp32", "fp16", "bf16")
_DEFAULT = Execution(Path())
_JOB_OPTIONS = ("bundle", "window", "tiling", "genetic_code", "precision", "embeddings")


def a_name(text: str) -> str:
    """Return the text; refuse an empty one, as from an unset variable of a script."""
    if not text:
        raise argparse.ArgumentTypeError("is empty")
    return text


def a_path(text: str) -> Path:
    """Return the path; refuse an empty one, which would be the current folder."""
    return Path(a_name(text))


def _integer_from(least: int) -> Callable[[str], int]:
    def parse(text: str) -> int:
        try:
            number = int(text)
        except ValueError:
            number = least - 1
        if number < least:
            raise argparse.ArgumentTypeError(f"{text!r} is not a whole number of at least {least}")
        return number

    return parse


positive = _integer_from(1)


def seconds(text: str) -> float:
    """Parse a duration above zero."""
    try:
        number = float(text)
    except ValueError:
        number = 0.0
    if not 0 < number < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds above 0")
    return number


def _cpu_threads(text: str) -> int:
    """Parse a number of threads; refuse more than CPUs, since torch may abort the process."""
    number, cpus = positive(text), usable_cpus()
    if number > cpus:
        raise argparse.ArgumentTypeError(f"{text} exceeds the {cpus} CPUs of this process")
    return number


def add_input_argument(parser: argparse.ArgumentParser) -> None:
    """Add the input files."""
    parser.add_argument(
        "inputs",
        nargs="+",
        type=a_name,
        metavar="FASTA",
        help="FASTA or FASTQ files, plain or compressed (gz, bz2, xz, zst); - for standard input",
    )


def add_threads_option(parser: argparse.ArgumentParser) -> None:
    """Add the CPU threads of all workers."""
    parser.add_argument(
        "-t",
        "--threads",
        type=_cpu_threads,
        metavar="N",
        help="CPU threads of all workers together; default: all CPUs of this process",
    )


def add_quiet_option(parser: argparse.ArgumentParser) -> None:
    """Add the choice of no progress messages."""
    parser.add_argument("-q", "--quiet", action="store_true", help="print warnings and errors only")


def add_bundle_option(parser: "argparse._ActionsContainer") -> None:
    """Add the model."""
    parser.add_argument(
        "-b",
        "--bundle",
        type=a_name,
        default="mini",
        metavar="NAME",
        help="encoders and classifier: a name (see virnucpro bundle list) or a folder; "
        "default: mini",
    )


def add_execution_options(parser: argparse.ArgumentParser) -> None:
    """Add the output folder, the devices and the treatment of an earlier run."""
    parser.add_argument(
        "-o", "--outdir", type=a_path, required=True, metavar="DIR", help="output folder of the run"
    )
    parser.add_argument(
        "--devices",
        default="auto",
        metavar="LIST",
        help="devices, one worker process each: auto (all visible GPUs; without a GPU, one CPU "
        "worker per thread as far as memory allows), 0,1 (these GPUs), cpu:2 (two CPU workers); "
        "default: %(default)s",
    )
    add_threads_option(parser)
    existing = parser.add_mutually_exclusive_group()
    existing.add_argument(
        "--resume",
        action="store_true",
        help="resume the run in DIR if there is one; requires the same inputs and parameters",
    )
    existing.add_argument(
        "--force", action="store_true", help="delete the run in DIR and start a new one"
    )
    add_quiet_option(parser)
    parser.add_argument(
        "--log-format",
        choices=("text", "json"),
        default=_DEFAULT.log_format,
        help="format of the event logs: DIR/logs/*.log (text) or *.jsonl (json); "
        "default: %(default)s",
    )
    _add_failure_options(parser)


def _add_failure_options(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("failed workers")
    group.add_argument(
        "--max-restarts",
        type=_integer_from(0),
        default=_DEFAULT.restarts.max_restarts,
        metavar="N",
        help="maximum restarts without progress per worker; default: %(default)s",
    )
    group.add_argument(
        "--no-redeal",
        action="store_true",
        help="do not reassign a failed worker's remaining work; compute it later with --resume",
    )
    for name, default, period in (
        ("start", _DEFAULT.deadlines.start, "between the start of a worker and its first batch"),
        ("progress", _DEFAULT.deadlines.progress, "between two batches of a worker"),
    ):
        text = f"maximum time {period}; a worker that exceeds it is killed and restarted"
        add_timeout_option(group, name, text, default)


def add_timeout_option(
    group: "argparse._ActionsContainer", name: str, text: str, default: float | None = None
) -> None:
    """Add the option ``--NAME-timeout`` in seconds; `text` without default is its help."""
    shown = "" if default is None else f"; default: {default:g} s"
    group.add_argument(
        f"--{name}-timeout", type=seconds, default=default, metavar="SECONDS", help=text + shown
    )


def add_numeric_options(
    parser: "argparse._ActionsContainer", *, embeddings: tuple[str, ...]
) -> None:
    """Add the precision of the encoders and of the stored embeddings."""
    parser.add_argument(
        "--precision",
        choices=_PRECISIONS,
        default="auto",
        help="floating-point precision of the encoders; auto: a resumed run keeps its precision; "
        "a new run takes fp32 for encoders below 100 MB, fp16 on a GPU, bf16 on a CPU with AMX if "
        "the bundle's card lists it as verified, else fp32; default: auto",
    )
    none = " (none: do not write the file)" * ("none" in embeddings)
    parser.add_argument(
        "--embeddings",
        choices=embeddings,
        default="fp16",
        help=f"floating-point precision of embeddings.h5{none}; default: fp16",
    )


def add_device_options(parser: argparse.ArgumentParser) -> None:
    """Add one device, its precision and its CPU threads."""
    parser.add_argument(
        "--device",
        default="auto",
        metavar="NAME",
        help="device: cpu, cuda or cuda:N; auto: the first GPU, without a GPU the CPU; "
        "default: %(default)s",
    )
    parser.add_argument(
        "--precision",
        choices=_PRECISIONS,
        default="auto",
        help="floating-point precision; auto: as a new run on this device; default: %(default)s",
    )
    parser.add_argument(
        "-t",
        "--threads",
        type=_cpu_threads,
        default=1,
        metavar="N",
        help="CPU threads; more than 1 is faster with large encoders only; default: %(default)s",
    )


def add_tiling_options(
    parser: "argparse._ActionsContainer", default: str = "that of the bundle"
) -> None:
    """Add the options of windows and translation; `default` is shown in their help."""
    parser.add_argument(
        "--window", type=positive, metavar="BASES", help=f"window length; default: {default}"
    )
    parser.add_argument(
        "--tiling",
        choices=("published", "even"),
        help="placement of windows: published (as in the published tool) or even (evenly "
        f"spread); default: {default}",
    )
    parser.add_argument(
        "--genetic-code",
        type=positive,
        metavar="N",
        help=f"NCBI number of the genetic code; default: {default}",
    )


def execution_of(arguments: argparse.Namespace) -> Execution:
    """Collect the options of `add_execution_options`."""
    return Execution(
        outdir=arguments.outdir,
        devices=arguments.devices,
        threads=arguments.threads,
        resume=arguments.resume,
        force=arguments.force,
        restarts=replace(_DEFAULT.restarts, max_restarts=arguments.max_restarts),
        redeal=not arguments.no_redeal,
        deadlines=replace(
            _DEFAULT.deadlines, start=arguments.start_timeout, progress=arguments.progress_timeout
        ),
        log_format=arguments.log_format,
    )


def job_options(arguments: argparse.Namespace) -> dict[str, Any]:
    """Collect the options of `predict_job` that have a value."""
    given = {name: getattr(arguments, name) for name in _JOB_OPTIONS}
    return {name: value for name, value in given.items() if value is not None}

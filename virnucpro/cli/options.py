"""Options that several commands share."""

import argparse
import os
from dataclasses import replace
from pathlib import Path

from virnucpro.pipeline.execution import Execution

__all__ = [
    "a_name",
    "a_path",
    "add_device_options",
    "add_execution_options",
    "add_input_argument",
    "add_numeric_options",
    "add_tiling_options",
    "cpu_threads",
    "execution_of",
    "positive",
    "seconds",
]

_PRECISIONS = ("auto", "fp32", "fp16", "bf16")


def a_name(text: str) -> str:
    """Refuse a variable of a script that is not set; an empty path would be the folder of now."""
    if not text:
        raise argparse.ArgumentTypeError("is empty")
    return text


def a_path(text: str) -> Path:
    """Parse a path, as `a_name`."""
    return Path(a_name(text))


def positive(text: str) -> int:
    """Parse a whole number above zero."""
    number = int(text)
    if number < 1:
        raise ValueError(text)
    return number


def cpu_threads(text: str) -> int:
    """Parse a number of threads: more than the process has CPUs for are of no use, or fatal.

    torch ends the process where the system refuses to start a thread.
    """
    number, most = positive(text), len(os.sched_getaffinity(0))
    if number > most:
        raise argparse.ArgumentTypeError(f"{text} are more than the {most} CPUs of this process")
    return number


def add_input_argument(parser: argparse.ArgumentParser) -> None:
    """Add the input files."""
    parser.add_argument(
        "inputs",
        nargs="+",
        type=a_name,
        metavar="FASTA",
        help="FASTA or FASTQ; plain, gz, bz2, xz or zst; - for standard input",
    )


def add_execution_options(parser: argparse.ArgumentParser) -> None:
    """Add where to write and what to run on."""
    parser.add_argument(
        "-o", "--outdir", type=a_path, required=True, metavar="DIR", help="folder of the run"
    )
    parser.add_argument(
        "--devices",
        default="auto",
        metavar="LIST",
        help="what to compute on, one process (a rank) each: auto (all GPUs that this process "
        "sees, else a CPU rank for each thread, as far as memory goes), 0,1 (those GPUs), cpu:2 "
        "(two CPU ranks); default: %(default)s",
    )
    parser.add_argument(
        "-t",
        "--threads",
        type=cpu_threads,
        metavar="N",
        help="CPU threads for all ranks together; default: all that this process may use",
    )
    existing = parser.add_mutually_exclusive_group()
    existing.add_argument(
        "--resume",
        action="store_true",
        help="go on with the run in DIR where there is one (same inputs and parameters)",
    )
    existing.add_argument(
        "--force", action="store_true", help="remove the run in DIR and start anew"
    )
    parser.add_argument("-q", "--quiet", action="store_true", help="print warnings and errors only")
    parser.add_argument(
        "--log-format",
        choices=("text", "json"),
        default=Execution(Path()).log_format,
        help="what ranks and coordinator did: in DIR/logs/*.log for people, or *.jsonl for "
        "programs; default: %(default)s",
    )
    _add_supervision_options(parser)


def _add_supervision_options(parser: argparse.ArgumentParser) -> None:
    """Add what is done about ranks that fail."""
    default = Execution(Path())
    group = parser.add_argument_group("when a rank fails")
    group.add_argument(
        "--max-restarts",
        type=_not_negative,
        default=default.restarts.max_restarts,
        metavar="N",
        help="how often a rank that gets no further is started again before it is given up; "
        "default: %(default)s",
    )
    group.add_argument(
        "--no-redeal",
        action="store_true",
        help="leave what a rank that is given up has not done to --resume, not to the other ranks",
    )
    for name, limit, what in (
        ("start", default.deadlines.start, "from its start to its first batch"),
        ("progress", default.deadlines.progress, "from one batch to the next"),
    ):
        group.add_argument(
            f"--{name}-timeout",
            type=seconds,
            default=limit,
            metavar="SECONDS",
            help=f"longest time of a rank {what}: one that takes longer counts as hanging and is "
            "started again; default: %(default)g",
        )


def _not_negative(text: str) -> int:
    number = int(text)
    if number < 0:
        raise ValueError(text)
    return number


def seconds(text: str) -> float:
    """Parse a length of time above zero."""
    number = float(text)
    if not 0 < number < float("inf"):
        raise ValueError(text)
    return number


def add_numeric_options(parser: argparse.ArgumentParser, *, embeddings: tuple[str, ...]) -> None:
    """Add what is computed with and stored as which kind of number."""
    parser.add_argument(
        "--precision",
        choices=_PRECISIONS,
        default="auto",
        help="numbers that the encoders compute with; auto: with --resume those of the run, else "
        "fp32 for small encoders, and for large ones fp16 on a GPU, bf16 on a CPU that multiplies "
        "matrices of it (AMX) if 16 made-up sequences agree with fp32 there (for which a new run "
        "reads the weights twice more), fp32 on other CPUs. Any other choice is taken as it is. "
        "Default: %(default)s",
    )
    none = "; none: there is no such file" * ("none" in embeddings)
    parser.add_argument(
        "--embeddings",
        choices=embeddings,
        default="fp16",
        help=f"numbers that embeddings.h5 stores{none}; default: %(default)s",
    )


def add_device_options(parser: argparse.ArgumentParser) -> None:
    """Add one device to compute on, and the kind of number to compute with there."""
    parser.add_argument(
        "--device",
        default="auto",
        metavar="NAME",
        help="torch's name of a device: cpu, cuda, cuda:1; auto: the first GPU where there is one, "
        "else the CPU; default: %(default)s",
    )
    parser.add_argument(
        "--precision",
        choices=_PRECISIONS,
        default="auto",
        help="numbers to compute with; auto: what a run takes on this device, on a CPU with AMX "
        "bf16 without a trial; default: %(default)s",
    )
    parser.add_argument(
        "-t",
        "--threads",
        type=cpu_threads,
        default=1,
        metavar="N",
        help="CPU threads; more than one pays off with large encoders alone; default: %(default)s",
    )


def add_tiling_options(parser: "argparse._ActionsContainer", default: str = "the bundle's") -> None:
    """Add how records are cut into windows and translated; `default` is for people."""
    parser.add_argument(
        "--window",
        type=positive,
        metavar="BASES",
        help=f"length of a window; default: {default}",
    )
    parser.add_argument(
        "--tiling",
        choices=("published", "even"),
        help=f"how windows are laid: as the published tool does, or evenly; default: {default}",
    )
    parser.add_argument(
        "--genetic-code",
        type=positive,
        metavar="N",
        help=f"NCBI's number of the genetic code; default: {default}",
    )


def execution_of(arguments: argparse.Namespace) -> Execution:
    """Collect what `add_execution_options` added."""
    default = Execution(arguments.outdir)
    return Execution(
        outdir=arguments.outdir,
        devices=arguments.devices,
        threads=arguments.threads,
        resume=arguments.resume,
        force=arguments.force,
        restarts=replace(default.restarts, max_restarts=arguments.max_restarts),
        redeal=not arguments.no_redeal,
        deadlines=replace(
            default.deadlines,
            start=arguments.start_timeout,
            progress=arguments.progress_timeout,
        ),
        log_format=arguments.log_format,
    )

"""``virnucpro launch``: process the files of a folder, one after the other on each device."""

import argparse
import json
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING

from virnucpro.cli.exit_codes import ExitCode
from virnucpro.cli.options import (
    a_path,
    add_bundle_option,
    add_numeric_options,
    add_quiet_option,
    add_threads_option,
    add_tiling_options,
    add_timeout_option,
    job_options,
    positive,
)
from virnucpro.cli.tables import aligned
from virnucpro.console import say
from virnucpro.errors import UsageError
from virnucpro.pipeline.execution import Execution

if TYPE_CHECKING:
    from collections.abc import Sequence

    from virnucpro.launch.results import FileResult

__all__ = ["add_options"]

_RESERVED_KEYWORDS = {"self", "gpu_id", "seed"}


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the description and the options of the command."""
    parser.description = (
        "Process every file of a folder with workers that load the encoders once, one "
        "worker per device. The run of DIR/a.fa is in OUT/a.fa, the table of all files in "
        "OUT/launch.tsv and OUT/launch.json. To resume a launch, rerun the same command. "
        "Exit code 0: all files done; 2: some files failed or are partial; 1: no file was done."
    )
    parser.add_argument(
        "--input-dir", type=a_path, required=True, metavar="DIR", help="folder of the input files"
    )
    parser.add_argument(
        "--pattern",
        default="*",
        metavar="GLOB",
        help="pattern of the file names, such as '*.fa.gz' or '**/*.fa'; default: %(default)s",
    )
    parser.add_argument(
        "-o", "--outdir", type=a_path, required=True, metavar="OUT", help="folder of the results"
    )
    parser.add_argument(
        "--gpus",
        default="auto",
        metavar="LIST",
        help="devices, one worker each: auto (all visible GPUs; without a GPU, one CPU worker per "
        "thread as far as memory allows), 0,1 (these GPUs), cpu:2 (two CPU workers); "
        "default: %(default)s",
    )
    parser.add_argument(
        "--worker",
        default="virnucpro.predict",
        metavar="NAME",
        help="class that processes a file, a virnucpro.dispatch.BaseWorker: package.module:Class "
        "or path/to/file.py:Class; default: %(default)s",
    )
    add_threads_option(parser)
    parser.add_argument(
        "--resume", action="store_true", help="no effect: a launch always resumes the runs in OUT"
    )
    add_quiet_option(parser)
    _add_failure_options(parser)
    _add_worker_options(parser)
    parser.set_defaults(run=_run, bundle=None, precision=None, embeddings=None)


def _add_failure_options(parser: argparse.ArgumentParser) -> None:
    deadlines = Execution(Path()).deadlines
    group = parser.add_argument_group("failed workers and files")
    group.add_argument(
        "--max-attempts",
        type=positive,
        default=3,
        metavar="N",
        help="maximum attempts per file if its worker dies or hangs; default: %(default)s",
    )
    text = "maximum time per file; a file that exceeds it has failed; default: none"
    add_timeout_option(group, "file", text)
    text = "maximum set-up time of a worker; one that exceeds it is ended"
    add_timeout_option(group, "start", text, deadlines.start)
    text = (
        "maximum time without progress within a file; a worker that exceeds it is replaced and "
        "the file retried; default: set by the worker class, for "
        f"virnucpro.predict {deadlines.progress:g} s"
    )
    add_timeout_option(group, "progress", text)


def _add_worker_options(parser: argparse.ArgumentParser) -> None:
    job = parser.add_argument_group("options of virnucpro.predict, as for virnucpro predict")
    add_bundle_option(job)
    add_tiling_options(job)
    add_numeric_options(job, embeddings=("fp16", "fp32", "none"))
    other = parser.add_argument_group("options of other workers")
    other.add_argument(
        "--set",
        dest="keywords",
        action="append",
        default=[],
        type=_keyword,
        metavar="NAME=VALUE",
        help="keyword of the worker's setup; the value is JSON, otherwise text; repeatable",
    )


def _keyword(text: str) -> tuple[str, object]:
    name, equals, value = text.partition("=")
    if not (equals and name.isidentifier()):
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=VALUE")
    if name in _RESERVED_KEYWORDS:
        raise argparse.ArgumentTypeError(f"{name} is reserved for the launch itself")
    try:
        return name, json.loads(value)
    except json.JSONDecodeError:
        return name, value


def _run(arguments: argparse.Namespace) -> int:
    from virnucpro.launch.orchestrator import LauncherOrchestrator, LaunchOptions
    from virnucpro.launch.table import readable
    from virnucpro.launch.worker_spec import load_worker
    from virnucpro.predict_worker import Worker

    worker = load_worker(arguments.worker)
    keywords = job_options(arguments)
    predicts = issubclass(worker, Worker)
    if predicts:
        keywords.setdefault("precision", "auto")
    elif keywords:
        raise UsageError(
            f"--{next(iter(keywords)).replace('_', '-')} is an option of virnucpro.predict; give "
            "another worker its keywords with --set NAME=VALUE."
        )
    names = [field.name for field in fields(LaunchOptions)]
    options = LaunchOptions(**{name: getattr(arguments, name) for name in names})
    try:
        report = LauncherOrchestrator().launch(
            arguments.input_dir,
            arguments.outdir,
            arguments.gpus,
            arguments.pattern,
            worker,
            options=options,
            keywords=keywords | dict(arguments.keywords),
        )
    except BaseException as error:
        if not isinstance(error, Exception):
            say(f"stopped ({error}). Rerun the command to resume.")
        raise
    if not arguments.quiet:
        _print_table(readable(report.rows))
    if predicts:
        _advise(report.results, arguments)
    return ExitCode(report.exit_code)


def _print_table(rows: "Sequence[Sequence[str]]") -> None:
    try:
        print(*aligned(rows, right=()), sep="\n", flush=True)
    except OSError as error:  # the table is in launch.tsv as well
        say(f"warning: the table could not be printed: {error}")


def _advise(results: "Sequence[FileResult]", arguments: argparse.Namespace) -> None:
    """Print the next step for files that kill their workers: `predict` isolates the sequence."""
    killers = [one.file for one in results if one.error.startswith("worker ")]
    if killers:
        folder = arguments.outdir / Path(killers[0]).relative_to(arguments.input_dir.absolute())
        say(
            f"{len(killers):,} files killed their workers, or these hung. To isolate the sequence "
            f"and process all others, run: virnucpro predict {killers[0]} -o {folder} --resume, "
            "with the same options."
        )

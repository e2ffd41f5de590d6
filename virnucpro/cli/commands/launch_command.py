"""Process every file of a folder with workers that load the encoders once, one worker per device.

The run of DIR/a.fa is in OUT/a.fa, the table of all files in OUT/launch.tsv and OUT/launch.json. To
resume a launch, rerun the same command. Exit code 0: all files done; 2: some files failed or are
partial; 1: no file was done.
"""

import argparse
import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

from virnucpro.cli import options
from virnucpro.cli.exit_codes import ExitCode
from virnucpro.cli.run_job import fail_empty
from virnucpro.cli.tables import aligned
from virnucpro.console import say
from virnucpro.errors import UsageError
from virnucpro.launch_dir import TSV_NAME
from virnucpro.option import positive, seconds
from virnucpro.run.execution import Execution
from virnucpro.run.options import PredictOptions

if TYPE_CHECKING:
    from collections.abc import Sequence

    from virnucpro.launch.results import FileResult

_RESERVED_KEYWORDS = {"self", "gpu_id", "seed"}
_ONLY_IN_FILES = "(sequences|viral)_.*"
"""Columns of launch.tsv that are not printed."""
_RUN: Final = Execution(Path())


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command ``launch``."""
    text = "folder of the input files"
    parser.add_argument("--input-dir", type=Path, required=True, metavar="DIR", help=text)
    text = "pattern of the file names, such as '*.fa.gz' or '**/*.fa'; default: %(default)s"
    parser.add_argument("--pattern", default="*", metavar="GLOB", help=text)
    options.add_outdir(parser, "OUT", "folder of the results")
    parser.add_argument(
        "--worker",
        default="virnucpro.predict",
        metavar="NAME",
        help="class that processes a file, a virnucpro.dispatch.BaseWorker: package.module:Class "
        "or path/to/file.py:Class; default: %(default)s",
    )
    options.add_quiet(parser)
    title = "options of the default worker, virnucpro.predict"
    options.add(parser, PredictOptions, without=("paired",), title=title)  # a file is a run
    other = parser.add_argument_group("options of other workers")
    other.add_argument(
        "--set",
        dest="keywords",
        action="append",
        default=[],
        type=_keyword,
        metavar="NAME=VALUE",
        help="argument of the worker's method setup; VALUE is JSON or plain text; repeatable",
    )
    options.add(parser, Execution, only=("task", "devices", "threads", "fail_empty", "lock"))
    group = parser.add_argument_group("failed workers and files")
    text = "maximum time without progress within a file; a worker that exceeds it is replaced, and "
    text += "its file is retried; default: that of the worker class (virnucpro.predict: "
    text += f"{_RUN.progress_timeout:g} s)"
    group.add_argument("--progress-timeout", type=seconds, metavar="SECONDS", help=text)
    text = "maximum attempts per file if its worker dies or hangs; default: %(default)s"
    group.add_argument("--max-attempts", type=positive, default=3, metavar="N", help=text)


def _keyword(text: str) -> tuple[str, object]:
    name, equals, value = text.partition("=")
    if not (equals and name.isidentifier()):
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=VALUE")
    if name in _RESERVED_KEYWORDS:
        raise argparse.ArgumentTypeError(f"{name} is reserved for the launch: it cannot be set")
    try:
        return name, json.loads(value)
    except json.JSONDecodeError:
        return name, value


def run(arguments: argparse.Namespace) -> int:
    """Run the command ``launch``; return its exit code."""
    from virnucpro.launch.orchestrator import LauncherOrchestrator, LaunchOptions
    from virnucpro.launch.table import FileShare, readable
    from virnucpro.launch.worker_spec import DEFAULT_WORKER, load_worker
    from virnucpro.predict_worker import Worker

    module = arguments.worker.partition(":")[0]
    if module != DEFAULT_WORKER and not module.endswith(".py"):
        sys.path.append(os.getcwd())  # noqa: PTH109 - last: it replaces no other module
    worker = load_worker(arguments.worker)
    keywords = options.chosen(PredictOptions, arguments)
    predicts = issubclass(worker, Worker)
    if keywords and not predicts:
        raise UsageError(
            f"--{next(iter(keywords)).replace('_', '-')} is an option of virnucpro.predict only; "
            "set keywords of the class in --worker with --set NAME=VALUE."
        )
    if "task" in arguments:
        arguments.share = FileShare(arguments.task.number, arguments.task.count)
    chosen = LaunchOptions(**options.chosen(LaunchOptions, arguments))
    try:
        report = LauncherOrchestrator().launch(
            arguments.input_dir,
            arguments.outdir,
            getattr(arguments, "devices", _RUN.devices),
            arguments.pattern,
            worker,
            options=chosen,
            keywords=keywords | dict(arguments.keywords),
        )
    except BaseException as error:
        if not isinstance(error, Exception):
            say(f"stopped ({error}). Rerun the command to resume.")
        raise
    if not arguments.quiet:
        _print_table(readable(report.rows, _ONLY_IN_FILES))
        say(f"written to {arguments.outdir / TSV_NAME}")
    if predicts:
        if not arguments.quiet:
            _say_totals(report.results)
        _advise(report.results, arguments)
        details = [file.result.get("details", {}) for file in report.results]
        scored = sum(detail.get("records", {}).get("scored", 0) for detail in details)
        return fail_empty(scored, arguments) or ExitCode(report.exit_code)
    return ExitCode(report.exit_code)


def _say_totals(results: "Sequence[FileResult]") -> None:
    total, viral, proviruses = (
        sum(file.result[name] for file in results if isinstance(file.result.get(name), int))
        for name in ("sequences", "viral", "proviruses")
    )
    say(f"{total:,} sequences, {viral:,} viral; {proviruses:,} with a provirus")
    rules = sorted({str(file.result["rule"]) for file in results if file.result.get("rule")})
    if len(rules) > 1:
        say(
            f"warning: the files have different rules of the calls ({'; '.join(rules)}), see the "
            "column rule of launch.tsv. To call all files by one rule, rerun the command with "
            "--preset, --threshold or --fdr."
        )


def _print_table(rows: "Sequence[Sequence[str]]") -> None:
    try:
        print(*aligned(rows, right=()), sep="\n", flush=True)
    except OSError as error:  # the table is in launch.tsv as well
        say(f"warning: the table could not be printed ({error}). It is in launch.tsv.")


def _advise(results: "Sequence[FileResult]", arguments: argparse.Namespace) -> None:
    """Print what to do about files that killed their workers."""
    killers = [result.file for result in results if result.error.startswith("worker ")]
    if killers:
        folder = arguments.outdir / Path(killers[0]).relative_to(arguments.input_dir.absolute())
        say(
            f"{len(killers):,} files failed because their workers died or hung. To find the faulty "
            f"sequence and process all others, run: virnucpro predict {killers[0]} "
            f"-o {folder} --resume, with the same options."
        )

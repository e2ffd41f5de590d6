"""``virnucpro launch``: many files over the devices, one after the other on each."""

import argparse
import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from virnucpro.cli.exit_codes import ExitCode
from virnucpro.cli.options import a_name, a_path, add_tiling_options, cpu_threads, positive, seconds
from virnucpro.cli.progress import Advice, open_reporter
from virnucpro.cli.saying import say
from virnucpro.cli.tables import aligned
from virnucpro.errors import UsageError
from virnucpro.pipeline.execution import Execution

if TYPE_CHECKING:
    from collections.abc import Sequence

    from virnucpro.launch.results import FileResult
    from virnucpro.runtime.devices import Device

__all__ = ["add_parser"]

_GIVEN = {"self", "gpu_id", "seed"}

_GO_ON = "Repeat the command to go on."
_JOB_OPTIONS = ("bundle", "window", "tiling", "genetic_code", "precision", "embeddings")


def add_parser(commands: Any) -> None:  # noqa: ANN401 - argparse keeps the type of subparsers private
    """Add the command and its options."""
    parser = commands.add_parser(
        "launch",
        help="many files over the devices, a run folder each",
        description="Have every file of a folder done by workers that load the encoders once, "
        "one a device: the run of DIR/a.fa lies in OUT/a.fa, the table of all files in "
        "OUT/launch.tsv and launch.json. The same command again goes on where the last one ended. "
        "Exit code 0: all done; 2: some files failed, or are partial; 1: nothing could be done.",
    )
    parser.add_argument(
        "--input-dir", type=a_path, required=True, metavar="DIR", help="folder of the files"
    )
    parser.add_argument(
        "--pattern",
        default="*",
        metavar="GLOB",
        help="which files, such as '*.fa.gz' or '**/*.fa'; default: %(default)s",
    )
    parser.add_argument(
        "-o", "--outdir", type=a_path, required=True, metavar="OUT", help="folder of the results"
    )
    parser.add_argument(
        "--gpus",
        default="auto",
        metavar="LIST",
        help="auto (all GPUs that this process sees, else a CPU worker for each thread), 0,1 "
        "(those GPUs), cpu:2 (two CPU workers); default: %(default)s",
    )
    parser.add_argument(
        "--worker",
        default="virnucpro.predict",
        metavar="NAME",
        help="what does a file: package.module:Class or path/to/file.py:Class, a "
        "virnucpro.dispatch.BaseWorker; default: %(default)s",
    )
    _add_course_options(parser)
    _add_worker_options(parser)
    parser.set_defaults(run=_run)


def _add_course_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "-t",
        "--threads",
        type=cpu_threads,
        metavar="N",
        help="CPU threads for all workers together; default: all that this process may use",
    )
    parser.add_argument(
        "--max-attempts",
        type=positive,
        default=3,
        metavar="N",
        help="how often a file is begun that kills its workers or hangs them; default: %(default)s",
    )
    parser.add_argument(
        "--file-timeout",
        type=seconds,
        metavar="SECONDS",
        help="longest time for a file: one that takes longer has failed; default: none",
    )
    parser.add_argument(
        "--start-timeout",
        type=seconds,
        default=Execution(Path()).deadlines.start,
        metavar="SECONDS",
        help="longest time of a worker from its start to its first file: one that takes longer is "
        "given up, and the others do its work; default: %(default)g",
    )
    parser.add_argument(
        "--progress-timeout",
        type=seconds,
        metavar="SECONDS",
        help="longest time of a worker from one sign of progress within a file to the next: one "
        "that takes longer counts as hanging, and its file is begun again; default: the worker's "
        f"own, for virnucpro.predict {Execution(Path()).deadlines.progress:g} from one batch to "
        "the next",
    )
    parser.add_argument(
        "--resume", action="store_true", help="changes nothing: a launch goes on with OUT anyway"
    )
    parser.add_argument("-q", "--quiet", action="store_true", help="print warnings and errors only")


def _add_worker_options(parser: argparse.ArgumentParser) -> None:
    job = parser.add_argument_group("for virnucpro.predict, as virnucpro predict takes them")
    job.add_argument(
        "-b", "--bundle", type=a_name, metavar="NAME", help="encoders and classifier; default: mini"
    )
    add_tiling_options(job)
    job.add_argument(
        "--precision",
        choices=("auto", "fp32", "fp16", "bf16"),
        help="numbers that the encoders compute with; default: auto",
    )
    job.add_argument(
        "--embeddings",
        choices=("fp16", "fp32", "none"),
        help="numbers that embeddings.h5 stores; default: fp16",
    )
    other = parser.add_argument_group("for other workers")
    other.add_argument(
        "--set",
        dest="keywords",
        action="append",
        default=[],
        type=_keyword,
        metavar="NAME=VALUE",
        help="a keyword for the worker's setup; the value is JSON, or else text; repeatable",
    )


def _keyword(text: str) -> tuple[str, object]:
    name, equals, value = text.partition("=")
    if not (equals and name.isidentifier()):
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=VALUE")
    if name in _GIVEN:
        raise argparse.ArgumentTypeError(f"{name} is what every worker is given anyway")
    try:
        return name, json.loads(value)
    except json.JSONDecodeError:
        return name, value


def _run(arguments: argparse.Namespace) -> int:
    from virnucpro.launch.orchestrator import LauncherOrchestrator, LaunchOptions
    from virnucpro.launch.summary import readable
    from virnucpro.launch.worker_spec import load_worker
    from virnucpro.predict import Worker

    worker = load_worker(arguments.worker)
    given = {name: getattr(arguments, name) for name in _JOB_OPTIONS}
    keywords = {name: value for name, value in given.items() if value is not None}
    gpus: str | Sequence[Device] = arguments.gpus
    if issubclass(worker, Worker):
        gpus, keywords = _prepared(arguments, keywords)
    elif keywords:
        raise UsageError(
            f"--{next(iter(keywords)).replace('_', '-')} is for virnucpro.predict; give another "
            "worker its keywords by --set NAME=VALUE."
        )
    options = LaunchOptions(
        threads=arguments.threads,
        max_attempts=arguments.max_attempts,
        file_timeout=arguments.file_timeout,
        start_timeout=arguments.start_timeout,
        progress_timeout=arguments.progress_timeout,
        quiet=arguments.quiet,
    )
    try:
        report = LauncherOrchestrator().launch(
            arguments.input_dir,
            arguments.outdir,
            gpus,
            arguments.pattern,
            worker,
            options=options,
            keywords=keywords | dict(arguments.keywords),
        )
    except BaseException as error:
        if not isinstance(error, Exception):
            say(f"stopped ({error}). {_GO_ON}")
        raise
    if not arguments.quiet:
        print(*aligned(readable(report.rows), right=()), sep="\n")
    if issubclass(worker, Worker):
        _advise(report.results, arguments)
    return ExitCode(report.exit_code)


def _advise(results: "Sequence[FileResult]", arguments: argparse.Namespace) -> None:
    """Say what to do about files that kill their workers: alone, a run finds the sequence."""
    deadly = [one.file for one in results if one.error.startswith("worker ")]
    if deadly:
        folder = arguments.outdir / Path(deadly[0]).relative_to(arguments.input_dir.absolute())
        say(
            f"{len(deadly):,} files killed their workers, or hung them. To find the sequence that "
            f"does, and have all others answered: virnucpro predict {deadly[0]} -o {folder} "
            "--resume, with the same options."
        )


def _prepared(
    arguments: argparse.Namespace, options: dict[str, Any]
) -> "tuple[Sequence[Device], dict[str, Any]]":
    """Open the bundle once, for all workers; choose devices and precision as `predict` does."""
    from virnucpro.cli.earlier_runs import precision_of_runs
    from virnucpro.pipeline.precision import with_precision
    from virnucpro.pipeline.predict import predict_job
    from virnucpro.pipeline.ranks import devices_of
    from virnucpro.runtime.devices import parse_devices

    parse_devices(arguments.gpus, os.environ, option="--gpus")  # an error names the option
    choice = options.pop("precision", "auto")
    if choice == "auto":
        choice = precision_of_runs(arguments.outdir) or choice
    execution = Execution(arguments.outdir, devices=arguments.gpus, threads=arguments.threads)
    advice = Advice(stopped=_GO_ON)
    with open_reporter(arguments.outdir, quiet=arguments.quiet, advice=advice) as reporter:
        job = with_precision(predict_job((), precision=choice, **options), execution, reporter)
    return devices_of(job, execution), {"job": job}

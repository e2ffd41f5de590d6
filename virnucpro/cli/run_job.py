"""Options and execution shared by the commands ``predict`` and ``embed``."""

import argparse
from dataclasses import replace
from typing import TYPE_CHECKING

from virnucpro.cli import options
from virnucpro.cli.exit_codes import ExitCode
from virnucpro.cli.progress import open_reporter
from virnucpro.pipeline.execution import Execution
from virnucpro.runtime.watchdog import Deadlines

if TYPE_CHECKING:
    from collections.abc import Callable

    from virnucpro.pipeline.jobs.job import Job

__all__ = [
    "add_execution_options",
    "add_failure_options",
    "add_run_options",
    "execution_of",
    "run_job",
]

_SLOW = "a worker that exceeds this limit is killed and restarted"
_TIMEOUTS = {
    "start": (
        options.DEFAULTS.deadlines.start,
        f"maximum time between the start of a worker and its first batch; {_SLOW}",
    ),
    "progress": (
        options.DEFAULTS.deadlines.progress,
        f"maximum time between two batches of a worker; {_SLOW}",
    ),
}


def add_run_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of inputs, output folder, devices and failures."""
    options.add_inputs(parser)
    options.add_outdir(parser, "DIR", "output folder of the run")
    add_execution_options(parser)


def add_execution_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of devices, existing runs, messages and failures."""
    options.add_devices(parser, "--devices")
    options.add_threads(parser)
    options.add_existing(parser, "run", "inputs and parameters")
    text = (
        "with --resume, read all inputs completely; default: read a sample of a file whose size "
        "and times are unchanged"
    )
    parser.add_argument("--check-inputs", action="store_true", help=text)
    options.add_quiet(parser)
    options.add_no_lock(parser)
    group = add_failure_options(parser)
    text = "do not reassign a failed worker's remaining work; compute it later with --resume"
    group.add_argument("--no-redeal", dest="redeal", action="store_false", help=text)


def add_failure_options(parser: argparse.ArgumentParser) -> argparse._ActionsContainer:
    """Add the options of event logs, time limits and restarts; return the group of failures."""
    text = "format of the event logs: DIR/logs/*.log (text) or *.jsonl (json); default: %(default)s"
    parser.add_argument("--log-format", choices=("text", "json"), default="text", help=text)
    group = options.add_failures(parser, "failed workers", _TIMEOUTS)
    group.add_argument(
        "--max-restarts",
        type=options.integer_from(0),
        default=options.DEFAULTS.restarts.max_restarts,
        metavar="N",
        help="maximum restarts without progress per worker; default: %(default)s",
    )
    return group


def _deadlines_of(arguments: argparse.Namespace) -> Deadlines:
    """Return the time limits that the options of `add_failure_options` describe."""
    given = {"start": arguments.start_timeout, "progress": arguments.progress_timeout}
    return replace(options.DEFAULTS.deadlines, **given)


def run_job(arguments: argparse.Namespace, job_of: "Callable[..., Job]") -> int:
    """Build a job from the options with `job_of`, run the job, and return the exit code."""
    from virnucpro.pipeline.predict import predict

    job = job_of(arguments.inputs, **options.job_options(arguments))
    execution = execution_of(arguments)
    with open_reporter(quiet=arguments.quiet) as reporter:
        outcome = predict(job, execution, reporter)
        reporter.finish(outcome)
    return ExitCode.OK if outcome.complete else ExitCode.PARTIAL


def execution_of(arguments: argparse.Namespace) -> Execution:
    """Return the execution that the options of `add_execution_options` describe."""
    return Execution(
        outdir=arguments.outdir,
        devices=arguments.devices,
        threads=arguments.threads,
        resume=bool(arguments.resume),
        force=arguments.force,
        restarts=replace(options.DEFAULTS.restarts, max_restarts=arguments.max_restarts),
        redeal=arguments.redeal,
        deadlines=_deadlines_of(arguments),
        log_format=arguments.log_format,
        lock=arguments.lock,
        check_inputs=arguments.check_inputs,
        report=getattr(arguments, "report", True),
    )

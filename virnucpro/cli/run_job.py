"""Options and execution shared by the commands ``predict`` and ``embed``."""

import argparse
from typing import TYPE_CHECKING

from virnucpro.cli import options
from virnucpro.cli.exit_codes import ExitCode
from virnucpro.console import say
from virnucpro.run.execution import Execution
from virnucpro.run.reporter import open_reporter

if TYPE_CHECKING:
    from collections.abc import Callable

    from virnucpro.run.job import Job
    from virnucpro.run.run import Outcome
    from virnucpro.task import Task


def add_job_options(
    parser: argparse.ArgumentParser, declared: type, *, without: tuple[str, ...] = ()
) -> None:
    """Add the options of inputs and output folder, those of `declared`, and those of a run.

    Options in `without` have no effect in the command.
    """
    options.add_inputs(parser)
    options.add_outdir(parser, "DIR", "output folder of the run")
    options.add_quiet(parser)
    options.add(parser, declared, Execution, without=without)


def run_job(arguments: argparse.Namespace, job_of: "Callable[..., Job]", declared: type) -> int:
    """Build a job from the options with `job_of`, run the job, and return the exit code."""
    from virnucpro.compute.predict import predict

    job = job_of(arguments.inputs, **options.chosen(declared, arguments))
    execution = Execution(**options.chosen(Execution, arguments))
    if execution.task:
        return _run_task(job, execution, execution.task, quiet=arguments.quiet)
    with open_reporter(quiet=arguments.quiet, force=execution.force) as reporter:
        outcome = predict(job, execution, reporter)
        reporter.finish(outcome)
    return exit_code(outcome, arguments)


def _run_task(job: "Job", execution: Execution, task: "Task", *, quiet: bool) -> ExitCode:
    """Compute the units of one task; print how much of the run is done, and the next command."""
    from virnucpro.compute.predict import compute_task

    stopped = "Finished work is kept. Rerun the same command, here or elsewhere."
    with open_reporter(quiet=quiet, if_stopped=stopped, resumable=stopped) as reporter:
        outcome = compute_task(job, execution, task, reporter)
        reporter.close()
        if outcome.missing:
            reporter.warn(
                f"{outcome.missing:,} units of task {task} have no result: see the logs in "
                f"{execution.outdir}/run/tasks, then rerun the command"
            )
    if not quiet:
        say(
            f"task {task}: {outcome.computed:,} units computed; "
            f"{outcome.done:,} of {outcome.units:,} units of the run done"
        )
        when = "To" if outcome.done == outcome.units else "After the last task, to"
        say(f"{when} write the tables: virnucpro aggregate {execution.outdir}")
    return ExitCode.PARTIAL if outcome.missing else ExitCode.OK


def exit_code(outcome: "Outcome", arguments: argparse.Namespace) -> ExitCode:
    """Return the exit code of a command that wrote the outputs of a run."""
    if not outcome.complete:
        return ExitCode.PARTIAL
    return fail_empty(outcome.records.get("scored", 0), arguments) or ExitCode.OK


def fail_empty(n_scored: int, arguments: argparse.Namespace) -> ExitCode | None:
    """Report that no record was scored if ``--fail-empty`` is given; return the exit code."""
    if n_scored or not getattr(arguments, "fail_empty", False):
        return None
    say("error: no sequence has a result, and --fail-empty is given")
    return ExitCode.FAILED

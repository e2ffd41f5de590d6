"""Common part of the commands that make a run."""

import argparse
from typing import TYPE_CHECKING

from virnucpro.cli.exit_codes import ExitCode
from virnucpro.cli.options import execution_of
from virnucpro.cli.progress import open_reporter

if TYPE_CHECKING:
    from collections.abc import Callable

    from virnucpro.pipeline.jobs.job import Job

__all__ = ["run_job"]


def run_job(arguments: argparse.Namespace, job_of: "Callable[[argparse.Namespace], Job]") -> int:
    """Run the job that `job_of` makes of a command line; return the exit code."""
    from virnucpro.pipeline.predict import predict

    job = job_of(arguments)
    with open_reporter(arguments.outdir, quiet=arguments.quiet) as reporter:
        outcome = predict(job, execution_of(arguments), reporter)
        reporter.finish(outcome)
    return ExitCode.OK if outcome.complete else ExitCode.PARTIAL

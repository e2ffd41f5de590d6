"""The course of a command that makes a run: ranks started, job made and done, outcome told."""

import argparse
from typing import TYPE_CHECKING

from virnucpro.cli.exit_codes import ExitCode
from virnucpro.cli.options import execution_of
from virnucpro.cli.progress import open_reporter

if TYPE_CHECKING:
    from collections.abc import Callable

    from virnucpro.pipeline.job import Job

__all__ = ["run_job"]


def run_job(arguments: argparse.Namespace, job_of: "Callable[[argparse.Namespace], Job]") -> int:
    """Do the job of a command line, and return its exit code.

    Parameters
    ----------
    arguments
        With those of inputs, execution and numbers.
    job_of
        Makes the job while the ranks' processes start.
    """
    from virnucpro.pipeline.ahead import ranks_ahead

    execution = execution_of(arguments)
    with ranks_ahead(arguments.inputs, execution) as standby:
        from virnucpro.pipeline.predict import predict

        job = job_of(arguments)
        with open_reporter(arguments.outdir, quiet=arguments.quiet) as reporter:
            outcome = predict(job, execution, reporter, standby)
            reporter.finish(outcome)
    return ExitCode.OK if outcome.complete else ExitCode.PARTIAL

"""Run a job of the Python API as the command line runs it."""

import os
import warnings
from collections.abc import Callable
from contextlib import closing
from typing import NamedTuple

from virnucpro.api.run_folder import RunFolder
from virnucpro.api.source import InputFiles, Source, input_files
from virnucpro.cli.progress import CommandReporter, open_view
from virnucpro.errors import VirnucproError
from virnucpro.pipeline.execution import Execution
from virnucpro.pipeline.jobs.job import Job
from virnucpro.pipeline.predict import predict
from virnucpro.pipeline.run.outputs import Outcome
from virnucpro.runtime.process import leave_unguarded_import

__all__ = ["Computed", "compute"]

_CALLER = 3
"""Stack level of the function that called the API's function that calls `compute`."""


class Computed(NamedTuple):
    """A run: its folder, the counts of its results, and its warnings."""

    folder: RunFolder
    outcome: Outcome
    warnings: tuple[str, ...]


class _ApiReporter(CommandReporter):
    """Reporter of the command line that collects warnings, and prints only if `progress`."""

    def __init__(self, inputs: InputFiles, *, progress: bool) -> None:
        super().__init__(open_view() if progress else None, quiet=not progress)
        self._inputs, self._progress = inputs, progress
        self.warnings: dict[str, None] = {}

    def warn(self, text: str) -> None:
        """Collect a warning."""
        text = self._inputs.described(text)
        self.warnings[text] = None
        if self._progress:
            super().warn(text)


def compute(
    source: Source,
    job_of: Callable[[tuple[str, ...]], Job],
    *,
    outdir: str | os.PathLike[str] | None,
    devices: str,
    threads: int | None,
    resume: bool,
    force: bool,
    progress: bool,
) -> Computed:
    """Run the job that `job_of` returns for the input files of `source`.

    Parameters
    ----------
    outdir
        Folder of the run; None for a temporary folder, which is removed with the result.
    progress
        True: print progress and warnings as the command line does. False: print nothing; each
        warning is a `UserWarning` of the caller.

    Raises
    ------
    VirnucproError
        The errors of `virnucpro.pipeline.predict.predict`. A temporary folder is removed.
    """
    leave_unguarded_import()
    folder = RunFolder(outdir)
    try:
        with input_files(source) as inputs:
            job = job_of(inputs.paths)
            execution = Execution(
                folder.path,
                devices=devices,
                threads=threads,
                resume=resume,
                force=force,
                in_process=True,
                report=not folder.temporary,
            )
            reporter = _ApiReporter(inputs, progress=progress)
            with closing(reporter):
                outcome = predict(job, execution, reporter)
                reporter.finish(outcome)
        for text in () if progress else reporter.warnings:
            warnings.warn(text, stacklevel=_CALLER)
    except BaseException as error:
        if isinstance(error, VirnucproError):
            _add_notes(error, folder)
        folder.close()
        raise
    return Computed(folder, outcome, tuple(reporter.warnings))


def _add_notes(error: VirnucproError, folder: RunFolder) -> None:
    """Add what differs from the command line, whose options the messages name."""
    if "--" in str(error):
        error.add_note("In Python, the option --some-name is the keyword some_name.")
    if folder.temporary and str(folder.path) in str(error):
        error.add_note(
            "The run folder was temporary and is removed. Give an outdir to keep its logs, and to "
            "resume the run."
        )

"""Run a job of the Python API as the command line runs it."""

import os
import warnings
from collections.abc import Callable, Mapping
from typing import NamedTuple

from virnucpro.api.run_folder import RunFolder
from virnucpro.api.source import Source, input_files
from virnucpro.errors import VirnucproError
from virnucpro.pipeline.execution import Execution
from virnucpro.pipeline.jobs.job import Job, Reporter, SilentReporter
from virnucpro.pipeline.predict import predict
from virnucpro.pipeline.run.outputs import Outcome
from virnucpro.runtime.process import leave_unguarded_import
from virnucpro.runtime.status import WorkerStatus

__all__ = ["Computed", "compute"]

_CALLER = 4
"""Stack level of the function that called the API's function that calls `compute`."""


class Computed(NamedTuple):
    """A run: its folder, the counts of its results, and its warnings."""

    folder: RunFolder
    outcome: Outcome
    warnings: tuple[str, ...]


class _WarningReporter:
    """Reporter that collects warnings, and passes all messages on to another reporter."""

    def __init__(self, inner: Reporter) -> None:
        self._inner = inner
        self.texts: dict[str, None] = {}

    def stage(self, text: str) -> None:
        self._inner.stage(text)

    def ranks(self, statuses: Mapping[int, WorkerStatus]) -> None:
        self._inner.ranks(statuses)

    def warn(self, text: str) -> None:
        self.texts[text] = None
        self._inner.warn(text)


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
            job = job_of(inputs)
            execution = Execution(
                folder.path,
                devices=devices,
                threads=threads,
                resume=resume,
                force=force,
                in_process=True,
            )
            outcome, texts = _run(job, execution, progress=progress)
    except BaseException as error:
        if isinstance(error, VirnucproError):
            _add_notes(error, folder)
        folder.close()
        raise
    return Computed(folder, outcome, texts)


def _run(job: Job, execution: Execution, *, progress: bool) -> tuple[Outcome, tuple[str, ...]]:
    """Run a job; return the counts of its results, and its warnings."""
    if progress:
        from virnucpro.cli.progress import open_reporter  # noqa: PLC0415 - needed only here

        with open_reporter(quiet=False) as shown:
            reporter = _WarningReporter(shown)
            outcome = predict(job, execution, reporter)
            shown.finish(outcome)
        return outcome, tuple(reporter.texts)
    reporter = _WarningReporter(SilentReporter())
    outcome = predict(job, execution, reporter)
    if not outcome.complete:
        reporter.warn(
            f"{outcome.rows_missing:,} rows are missing and {outcome.rows_quarantined:,} are "
            f"quarantined: their sequences have no complete result. See the column status."
        )
    for text in reporter.texts:
        warnings.warn(text, stacklevel=_CALLER)
    return outcome, tuple(reporter.texts)


def _add_notes(error: VirnucproError, folder: RunFolder) -> None:
    """Add what differs from the command line, whose options the messages name."""
    if "--" in str(error):
        error.add_note("In Python, the option --some-name is the keyword some_name.")
    if folder.temporary and str(folder.path) in str(error):
        error.add_note(
            "The run folder was temporary and is removed. Give an outdir to keep its logs, and to "
            "resume the run."
        )

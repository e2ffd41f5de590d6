"""Messages of a command on standard error: stages, warnings, progress, closing summary."""

import sys
from importlib.util import find_spec
from typing import TYPE_CHECKING, Final, Self

from virnucpro.cli.progress_views import Bars, Lines, amount
from virnucpro.cli.summary import quarantine_warning, recomputed_warning, summary
from virnucpro.console import say
from virnucpro.runtime.signals import raise_if_asked_to_stop

if TYPE_CHECKING:
    from collections.abc import Mapping

    from virnucpro.pipeline.jobs.job import Workload
    from virnucpro.pipeline.run.outputs import Outcome
    from virnucpro.runtime.status import WorkerStatus

__all__ = ["CommandReporter", "open_reporter", "open_view"]

_RESUMABLE: Final = "Finished work is kept. Rerun the command with --resume."
_IF_STOPPED: Final = (
    "Nothing new was computed. Rerun the command, with --resume if the run folder exists."
)
_IF_PARTIAL: Final = "Rerun the command with --resume."


class CommandReporter:
    """Reporter of the progress of a run, on standard error.

    Parameters
    ----------
    view
        Display of the workers' progress; None for no display.
    quiet
        Print warnings only.
    if_stopped
        Advice to print if the command is stopped before its workers started.
    if_partial
        Advice to print if some sequences have no result yet.
    resumable
        Advice to print if the command is stopped while its workers compute.
    """

    def __init__(
        self,
        view: Lines | Bars | None,
        *,
        quiet: bool,
        if_stopped: str = _IF_STOPPED,
        if_partial: str = _IF_PARTIAL,
        resumable: str = _RESUMABLE,
    ) -> None:
        self._if_stopped, self._resumable = if_stopped, resumable
        self._if_partial = if_partial
        self._view = view
        self._quiet = quiet
        self._computing = False
        self._warnings: set[str] = set()

    def stage(self, text: str) -> None:
        """Print the name of the stage of work that starts now."""
        raise_if_asked_to_stop()
        if not self._quiet:
            say(text)

    def warn(self, text: str) -> None:
        """Print a warning, also in quiet mode; a repeated text is printed only once."""
        if text not in self._warnings:
            self._warnings.add(text)
            say(f"warning: {text}")

    def read(self, records: int, letters: int, *, protein: bool) -> None:
        """Show how many records and letters have been read."""
        raise_if_asked_to_stop()
        if self._view is not None:
            self._view.read(records, letters, protein=protein)

    def computing(self, work: "Workload") -> None:
        """Print what is computed now, and begin to show its progress."""
        letters = amount(work.letters, protein=work.protein)
        known = " (the rest is finished)" * work.resumed
        workers = f"{work.workers} worker{'s' * (work.workers != 1)}"
        if work.shared:
            workers += ", together with other tasks"
        self.stage(f"computing {letters} in {work.records:,} sequences on {workers}{known}")
        if self._view is not None:
            self._view.begin(work)

    def computed(self) -> None:
        """End the view of the progress, which stays as one line."""
        if self._view is not None:
            self._view.end()

    def ranks(self, statuses: "Mapping[int, WorkerStatus]") -> None:
        """Show the progress of each worker; `statuses` maps ranks to current statuses."""
        raise_if_asked_to_stop()
        self._computing = True
        if self._view is not None:
            self._view.show(statuses)

    def finish(self, outcome: "Outcome", *, if_partial: str = "") -> None:
        """Print a summary, and the next step for sequences without a result.

        The text `if_partial` replaces the advice of this reporter.
        """
        self.close()
        if not self._quiet:
            for line in summary(outcome):
                say(line)
        if outcome.rows_missing:
            self.warn(
                f"partial: {outcome.records.get('missing', 0):,} sequences have no result yet, "
                f"listed in {outcome.root / 'missing.tsv'}. {if_partial or self._if_partial}"
            )
        if outcome.rows_quarantined:
            self.warn(quarantine_warning(outcome))
        if outcome.again:
            self.warn(recomputed_warning(outcome))

    def close(self) -> None:
        """Restore the terminal after the progress display."""
        if self._view is not None:
            self._view.end()
            self._view = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        self.close()
        if error is not None and not isinstance(error, Exception):
            say(f"stopped ({error}). {self._resumable if self._computing else self._if_stopped}")


def open_reporter(*, quiet: bool, **advice: str) -> CommandReporter:
    """Return a progress reporter: bars on a terminal, else lines; only warnings if `quiet`.

    The optional keyword arguments `if_stopped`, `if_partial` and `resumable` are passed to
    `CommandReporter`.
    """
    return CommandReporter(None if quiet else open_view(), quiet=quiet, **advice)


def open_view() -> Lines | Bars:
    """Return a display of the progress: bars on a terminal, else lines."""
    return Bars() if sys.stderr.isatty() and find_spec("rich") else Lines()

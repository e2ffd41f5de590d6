"""Progress of a run on standard error: bars on a terminal, a line every 10 s elsewhere."""

import sys
import time
from collections.abc import Callable, Iterator, Mapping
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Final, Self

from virnucpro.console import say
from virnucpro.runtime.signals import raise_if_asked_to_stop

if TYPE_CHECKING:
    from virnucpro.pipeline.run.outputs import Outcome
    from virnucpro.runtime.status import WorkerStatus

__all__ = ["CommandReporter", "open_reporter"]

_INTERVAL_S: Final = 10.0

_RESUMABLE: Final = "Finished units are kept. Rerun the command with --resume."
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
        view: "_ProgressLines | _RichBars | None",
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

    def ranks(self, statuses: "Mapping[int, WorkerStatus]") -> None:
        """Show the progress of each worker; `statuses` maps ranks to current statuses."""
        raise_if_asked_to_stop()
        self._computing = True
        if self._view is not None:
            self._view.show(statuses)

    def finish(self, outcome: "Outcome") -> None:
        """Print a summary, and the next step for sequences without a result."""
        self.close()
        if not self._quiet:
            for line in _summary(outcome):
                say(line)
        if outcome.rows_missing:
            self.warn(
                f"partial: {outcome.records.get('missing', 0):,} sequences have no result yet, "
                f"listed in {outcome.root / 'missing.tsv'}. {self._if_partial}"
            )
        if outcome.rows_quarantined:
            self.warn(_quarantined(outcome))
        if outcome.again:
            self.warn(_recomputed(outcome))

    def close(self) -> None:
        """Restore the terminal after the progress display."""
        if self._view is not None:
            self._view.close()
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
    view: _ProgressLines | _RichBars | None = None
    if not quiet:
        view = _RichBars() if sys.stderr.isatty() and find_spec("rich") else _ProgressLines()
    return CommandReporter(view, quiet=quiet, **advice)


class _ProgressLines:
    """Display of the workers' progress for logs: one line every 10 s."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._next = clock() + _INTERVAL_S

    def show(self, statuses: "Mapping[int, WorkerStatus]") -> None:
        if self._clock() < self._next:
            return
        self._next = self._clock() + _INTERVAL_S
        say(
            ", ".join(
                f"worker {rank}: {status.state} {status.done:,}/{status.total:,} rows"
                for rank, status in sorted(statuses.items())
            )
        )

    def close(self) -> None:
        pass


class _RichBars:
    """Display of the workers' progress on a terminal: one bar for each worker."""

    def __init__(self) -> None:
        from rich import progress
        from rich.console import Console

        self._progress = progress.Progress(
            progress.TextColumn("worker {task.fields[rank]}"),
            progress.BarColumn(),
            progress.MofNCompleteColumn(),
            progress.TextColumn("{task.fields[state]}"),
            progress.TimeRemainingColumn(),
            console=Console(stderr=True),
            transient=True,
        )
        self._tasks: dict[int, Any] = {}

    def show(self, statuses: "Mapping[int, WorkerStatus]") -> None:
        if not self._tasks:
            self._progress.start()
        for rank, status in sorted(statuses.items()):
            if rank not in self._tasks:
                self._tasks[rank] = self._progress.add_task("", rank=rank, state="")
            self._progress.update(
                self._tasks[rank],
                completed=status.done,
                total=status.total or None,
                state=status.state,
            )

    def close(self) -> None:
        self._progress.stop()


def _summary(outcome: "Outcome") -> Iterator[str]:
    total = sum(outcome.records.values())
    by_status = ", ".join(f"{count:,} {name}" for name, count in outcome.records.items() if count)
    yield f"{total:,} sequences: {by_status or 'none'}"
    if outcome.calls:
        yield "calls: " + ", ".join(f"{count:,} {name}" for name, count in outcome.calls.items())
    yield f"written: {outcome.main_output}"


def _quarantined(outcome: "Outcome") -> str:
    text = (
        f"{outcome.rows_quarantined:,} rows are quarantined: they have no result, and --resume "
        f"does not recompute them. The reasons are in {outcome.root / 'quarantine.tsv'}."
    )
    if not outcome.rows_overflowing:
        return text
    return (
        f"{text} {outcome.rows_overflowing:,} of these rows exceed the range of fp16. To keep "
        "their vectors, start a new run with --embeddings fp32."
    )


def _recomputed(outcome: "Outcome") -> str:
    rows = sum(outcome.again.values())
    precisions = ", ".join(f"{count:,} at {name}" for name, count in outcome.again.items())
    advice = {
        "fp16": "To avoid such rows, start a new run with --precision bf16 or fp32.",
        "bf16": "To avoid such rows, start a new run with --precision fp32.",
        "fp32": "Such errors at fp32 can be hardware errors: check the device.",
    }
    return (
        f"the vectors of {rows:,} rows contained NaN or infinity at {outcome.precision} in a "
        f"batch. These rows were recomputed one by one: {precisions}. {advice[outcome.precision]}"
    )

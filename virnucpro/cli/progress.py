"""What a person sees of a run: bars on a terminal, plain lines elsewhere, nothing when quiet."""

import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Protocol, Self

from virnucpro.cli.saying import say
from virnucpro.runtime.signals import raise_if_asked_to_stop

if TYPE_CHECKING:
    from virnucpro.pipeline.outputs import Outcome
    from virnucpro.runtime.status import WorkerStatus

__all__ = ["Advice", "CommandReporter", "open_reporter"]

_LINE_EVERY = 10.0
"""Seconds between two progress lines where there is no terminal."""

_SAFE = "What was computed is safe: repeat with --resume."


@dataclass(frozen=True, slots=True)
class Advice:
    """What a command tells to do, each a sentence; as it stands, for those that make a run.

    Attributes
    ----------
    stopped
        Where it was stopped before ranks were at work.
    partial
        Where sequences are not answered yet.
    """

    stopped: str = (
        "Nothing new was computed: repeat the command as it was, --resume or --force included."
    )
    partial: str = "Repeat the command with --resume."


_OF_A_RUN = Advice()


class RankView(Protocol):
    """Shows the ranks' progress."""

    def show(self, statuses: "Mapping[int, WorkerStatus]") -> None:
        """Show where the ranks are."""

    def close(self) -> None:
        """Leave the terminal as it was."""


class CommandReporter:
    """Tells a run's story on standard error, in the words of the command line."""

    def __init__(
        self, root: Path, view: RankView | None, *, quiet: bool, advice: Advice = _OF_A_RUN
    ) -> None:
        self._root = root
        self._advice = advice
        self._view = view
        self._quiet = quiet
        self._computing = False
        self._warned: set[str] = set()

    def stage(self, text: str) -> None:
        """Say that a stage of the work begins."""
        raise_if_asked_to_stop()
        if not self._quiet:
            say(text)

    def warn(self, text: str) -> None:
        """Say what a person should know, quiet or not; once, however often it is found."""
        if text not in self._warned:
            self._warned.add(text)
            say(f"warning: {text}")

    def ranks(self, statuses: "Mapping[int, WorkerStatus]") -> None:
        """Show progress."""
        raise_if_asked_to_stop()
        self._computing = True
        if self._view is not None:
            self._view.show(statuses)

    def finish(self, outcome: "Outcome") -> None:
        """Sum up what was answered, and say what to do about what was not."""
        self.close()
        if not self._quiet:
            for line in _summary(outcome):
                say(line)
        if outcome.rows_missing:
            self.warn(
                f"partial: {outcome.records.get('missing', 0):,} sequences are not answered yet, "
                f"listed in {outcome.root / 'missing.tsv'}. {self._advice.partial}"
            )
        if outcome.rows_quarantined:
            self.warn(_given_up(outcome))
        if outcome.again:
            self.warn(_again(outcome))

    def close(self) -> None:
        """Leave the terminal as it was."""
        if self._view is not None:
            self._view.close()
            self._view = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
        if error is not None and not isinstance(error, Exception):
            say(f"stopped ({error}). {_SAFE if self._computing else self._advice.stopped}")


def open_reporter(root: Path, *, quiet: bool, advice: Advice = _OF_A_RUN) -> CommandReporter:
    """Choose how to show a run in the folder `root`."""
    view: RankView | None = None
    if not quiet:
        view = _terminal_bars() if sys.stderr.isatty() else _ProgressLines(time.monotonic)
    return CommandReporter(root, view, quiet=quiet, advice=advice)


class _ProgressLines:
    """A line every so often, for logs."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._next = clock() + _LINE_EVERY

    def show(self, statuses: "Mapping[int, WorkerStatus]") -> None:
        if self._clock() < self._next:
            return
        self._next = self._clock() + _LINE_EVERY
        say(
            "  ".join(
                f"rank {rank}: {status.state} {status.done:,}/{status.total:,}"
                for rank, status in sorted(statuses.items())
            )
        )

    def close(self) -> None:
        """Leave nothing behind."""


def _terminal_bars() -> RankView:
    try:
        import rich.progress  # noqa: F401 - an extra: lines do without it
    except ImportError:
        return _ProgressLines(time.monotonic)
    return _RichBars()


class _RichBars:
    """One bar a rank."""

    def __init__(self) -> None:
        from rich.console import Console  # an extra
        from rich.progress import (  # an extra
            BarColumn,
            MofNCompleteColumn,
            Progress,
            TextColumn,
            TimeRemainingColumn,
        )

        self._progress = Progress(
            TextColumn("rank {task.fields[rank]}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[state]}"),
            TimeRemainingColumn(),
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


def _given_up(outcome: "Outcome") -> str:
    """Say how many rows have no numbers for good, and of how many another run would have some."""
    text = (
        f"{outcome.rows_quarantined:,} rows have no numbers, and a resume gives them none: "
        f"{outcome.root / 'quarantine.tsv'} says why."
    )
    if not outcome.rows_overflowing:
        return text
    return (
        f"{text} {outcome.rows_overflowing:,} of them are too large for fp16: a new run with "
        "--embeddings fp32 keeps them."
    )


def _again(outcome: "Outcome") -> str:
    """Say how many rows have numbers of another precision than the run's."""
    rows = sum(outcome.again.values())
    how = ", ".join(f"{count:,} at {name}" for name, count in outcome.again.items())
    advice = {
        "fp16": "--precision bf16 or fp32 avoids it.",
        "bf16": "--precision fp32 avoids it.",
        "fp32": "Alone they are finite: is the device in order?",
    }
    return (
        f"{rows:,} rows were not finite at {outcome.precision} in their batch and were computed "
        f"again alone ({how}). {advice[outcome.precision]}"
    )

"""Messages of a run on standard error: stages, warnings, progress, closing summary.

The progress is bars on a terminal, and a line every 10 s elsewhere.
"""

import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Final, Self

from virnucpro.classifier.call_options import CallOptions
from virnucpro.console import counted, duration, say
from virnucpro.runtime.signals import raise_if_asked_to_stop

if TYPE_CHECKING:
    from rich.progress import TaskID

    from virnucpro.run.run import Outcome
    from virnucpro.runtime.status import WorkerStatus

_INTERVAL_S: Final = 10.0
_MILLION: Final = 1_000_000
_WIDE: Final = 130


@dataclass(frozen=True, slots=True)
class Workload:
    """What one launch computes.

    Attributes
    ----------
    records, letters
        Numbers of records and of their letters (bases or residues) that the launch computes, by
        the share of the run's rows.
    rows
        Number of rows to compute.
    workers
        Number of workers.
    protein
        Whether the letters are residues.
    resumed
        Whether other rows of the run are finished already.
    model
        Name of the bundle or encoder.
    devices
        Names of the devices that compute.
    limit
        Line about the number of CPUs to print before, or "".
    """

    records: int
    letters: int
    rows: int
    workers: int
    protein: bool
    resumed: bool
    model: str = "the model"
    devices: str = "cpu"
    limit: str = ""


class Reporter:
    """Receives the progress messages of a run; this base class ignores them."""

    def stage(self, text: str) -> None:
        """Report the start of a stage of the run; `text` describes the stage."""

    def finished(self, part: float, of: str = "") -> None:
        """Report which part of the stage, or of the work `of`, is finished, from 0 to 1."""

    def read(self, records: int, letters: int, *, protein: bool) -> None:
        """Report how many records and letters of the inputs have been read."""

    def computing(self, work: Workload) -> None:
        """Report that the computation of `work` starts now."""

    def computed(self) -> None:
        """Report that the workers have ended."""

    def ranks(self, statuses: "Mapping[int, WorkerStatus]") -> None:
        """Report the status of all ranks; called about twice a second."""

    def warn(self, text: str) -> None:
        """Report a warning about the run."""


def amount(letters: float, *, protein: bool = False) -> str:
    """Return a number of bases, or residues of a `protein`, as text such as ``12.4 Mb``."""
    scaled, prefix = (letters / _MILLION, "M") if letters >= _MILLION else (letters / 1000, "k")
    return f"{scaled:,.1f} {prefix}{' residues' if protein else 'b'}"


class _Pace:
    """Amount, rate and time left of a computation, from the rows that its workers have finished.

    The share of the rows stands for the share of bases and sequences, because windows have nearly
    the same length.
    """

    def __init__(self, work: Workload, clock: "Callable[[], float]") -> None:
        self._work = work
        self._clock = clock
        self._started = clock()
        self._first: float | None = None
        self._loaded = False
        self.finished = 0.0
        self._at_first = 0.0

    def update(self, statuses: "Mapping[int, WorkerStatus]") -> None:
        done = sum(status.done for status in statuses.values())
        self.finished = min(1.0, done / max(1, self._work.rows))
        self._loaded |= any(status.began_at for status in statuses.values())
        if self._first is None and done:
            self._first, self._at_first = self._clock(), self.finished

    @property
    def elapsed(self) -> float:
        return self._clock() - self._started

    def text(self, width: int = _WIDE) -> str:
        """Return amount, rate, elapsed time and time left; in two lines below a `width` of 130."""
        work = self._work
        parts = [f"{self._amount(self.finished * work.letters)} of {self._amount(work.letters)}"]
        parts.append(f"{round(self.finished * work.records):,} of {work.records:,} sequences")
        times = []
        # Models are loaded before the first row: the rate is that of the time after it.
        since = 0.0 if self._first is None else self._clock() - self._first
        gained = self.finished - self._at_first
        rate = gained / since if since > 0 else 0.0
        if rate > 0:
            times.append(f"{self._amount(rate * work.letters)}/s")
        if self._first is None:
            times.append("first batch" if self._loaded else f"loading {work.model}")
        times.append(f"{duration(self.elapsed)} elapsed")
        if rate > 0:
            times.append(f"{duration((1 - self.finished) / rate)} left")
        separator = ", " if width >= _WIDE else ",\n"
        return separator.join((", ".join(parts), ", ".join(times)))

    def activity(self, status: "WorkerStatus") -> str:
        """Return what a worker does, such as ``loading mini`` before its first row."""
        if status.state != "running" or status.done:
            return str(status.state)
        return "first batch" if status.began_at else f"loading {self._work.model}"

    def last_line(self) -> str:
        """Return what was computed, and how fast."""
        work, seconds = self._work, max(self.elapsed, 1e-9)
        letters = self.finished * work.letters
        return (
            f"computed {self._amount(letters)} in {duration(seconds)} "
            f"({self._amount(letters / seconds)}/s)"
        )

    def _amount(self, letters: float) -> str:
        return amount(letters, protein=self._work.protein)


class Lines:
    """Progress for logs: one line every 10 s."""

    def __init__(self, clock: "Callable[[], float]" = time.monotonic) -> None:
        self._clock = clock
        self._next = clock() + _INTERVAL_S
        self._pace: _Pace | None = None

    def read(self, records: int, letters: int, *, protein: bool) -> None:
        """Show how much of the inputs has been read."""
        if self._is_time():
            say(f"read {amount(letters, protein=protein)} in {counted(records, 'sequence')}")

    def stage(self, text: str, finished: float) -> None:
        """Show the finished share of a stage of work."""
        if self._is_time():
            say(f"{finished:.0%} of {text}")

    def begin(self, work: Workload) -> None:
        """Begin to show the computation of `work`."""
        self._pace = _Pace(work, self._clock)

    def show(self, statuses: "Mapping[int, WorkerStatus]") -> None:
        """Show the state of the workers, if the last line is old enough."""
        if self._pace is None:
            return
        self._pace.update(statuses)
        if self._is_time():
            workers = (
                f"worker {n} {self._pace.activity(status)}"
                for n, status in sorted(statuses.items())
            )
            say(f"{self._pace.finished:.0%}: {self._pace.text()}; {', '.join(workers)}")

    def end(self) -> None:
        """Print what was computed."""
        if self._pace is not None:
            say(self._pace.last_line())
            self._pace = None

    def _is_time(self) -> bool:
        if self._clock() < self._next:
            return False
        self._next = self._clock() + _INTERVAL_S
        return True


class Bars:
    """Progress on a terminal: a bar for the whole computation, below it one for each worker."""

    def __init__(self) -> None:
        from rich import progress  # noqa: PLC0415 - optional
        from rich.console import Console  # noqa: PLC0415 - optional

        self._console = Console(stderr=True)
        self._progress = progress.Progress(
            progress.TextColumn("{task.description}"),
            progress.BarColumn(bar_width=None),
            progress.TaskProgressColumn(show_speed=False),
            progress.TextColumn("{task.fields[text]}"),
            console=self._console,
            transient=True,
            expand=True,
        )
        self._pace: _Pace | None = None
        self._tasks: dict[str, TaskID] = {}

    def read(self, records: int, letters: int, *, protein: bool) -> None:
        """Show how much of the inputs has been read."""
        text = f"{amount(letters, protein=protein)} in {counted(records, 'sequence')}"
        self._bar("reading", None, text=text)

    def stage(self, text: str, finished: float) -> None:
        """Show the finished share of a stage of work; the bar ends at 1."""
        self._bar("stage", 1.0, description=text, completed=finished)
        if finished >= 1:
            self._clear()

    def begin(self, work: Workload) -> None:
        """Begin to show the computation of `work`."""
        self._clear()
        self._pace = _Pace(work, time.monotonic)
        self._bar("all", 1.0, text=self._pace.text(self._console.width))

    def show(self, statuses: "Mapping[int, WorkerStatus]") -> None:
        """Show the state of the workers."""
        if self._pace is None:
            return
        self._pace.update(statuses)
        text = self._pace.text(self._console.width)
        self._bar("all", 1.0, completed=self._pace.finished, text=text)
        for rank, status in sorted(statuses.items()):
            text = self._pace.activity(status)
            self._bar(f"worker {rank}", status.total or None, completed=status.done, text=text)

    def end(self) -> None:
        """Remove the bars, and print what was computed."""
        self._clear()
        if self._pace is not None:
            say(self._pace.last_line())
            self._pace = None

    def _bar(self, name: str, total: float | None, **shown: Any) -> None:  # noqa: ANN401 - as rich
        """Change the bar of this name, after adding it if it is new."""
        if name not in self._tasks:
            self._tasks[name] = self._progress.add_task(name, total=total, text="")
        self._progress.update(self._tasks[name], total=total, **shown)
        self._progress.start()

    def _clear(self) -> None:
        self._progress.stop()
        for task in self._tasks.values():
            self._progress.remove_task(task)
        self._tasks.clear()


_CALLS: Final = ("viral", "non-viral", "ambiguous")


def summary(outcome: "Outcome") -> Iterator[str]:
    """Yield the lines of the summary."""
    total = sum(outcome.records.values())
    sequences = counted(total, "sequence")
    without = {
        name.replace("_", " "): count
        for name, count in outcome.records.items()
        if name != "scored" and count
    }
    reasons = ", ".join(f"{count:,} {name}" for name, count in without.items())
    left = sum(without.values())
    if outcome.calls:
        parts = [f"{outcome.calls.get(call, 0):,} {call}" for call in _CALLS]
        what = "not scored"
    else:
        parts = [f"{outcome.records.get('scored', 0):,} with a vector"]
        what = "without a vector"
    parts += [f"{left:,} {what} ({reasons})"] if left else []
    provirus = ""
    if outcome.proviruses:
        noun = "provirus" if outcome.inserted == 1 else "proviruses"
        provirus = f"; {outcome.inserted:,} {noun} in {outcome.proviruses:,}"
        if not outcome.calls.get("viral"):
            yield f"no sequence is viral{provirus}"
            provirus = ""
    yield f"{sequences}: {', '.join(parts)}{provirus}" if total else "0 sequences"
    if outcome.rule not in ("", CallOptions().text):
        yield f"rule of the calls: {outcome.rule}"
    if outcome.expectation:
        yield outcome.expectation.text
    names = ", ".join(str(path.relative_to(outcome.root)) for path in outcome.files)
    yield f"written to {outcome.root}: {names}"
    if outcome.calls.get("viral") or outcome.proviruses:
        for path in outcome.files:
            if path.name.startswith("viruses."):
                yield f"viruses and proviruses for the next tool: {path}"


def quarantine_warning(outcome: "Outcome") -> str:
    """Return the warning about rows that have no result for good."""
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


def recomputed_warning(outcome: "Outcome") -> str:
    """Return the warning about rows that were recomputed at fp32."""
    advice = {
        "fp16": "To avoid such rows, start a new run with --precision bf16 or fp32.",
        "bf16": "To avoid such rows, start a new run with --precision fp32.",
        "fp32": "Such errors at fp32 can be hardware errors: check the device.",
    }
    return (
        f"the vectors of {outcome.recomputed:,} rows contained NaN or infinity at "
        f"{outcome.precision} in a batch. These rows were recomputed one by one at fp32. "
        f"{advice[outcome.precision]}"
    )


_RERUN: Final = "Nothing new was computed. Rerun the command"


class CommandReporter(Reporter):
    """Reporter of the progress of a run, on standard error.

    Parameters
    ----------
    view
        Display of the workers' progress; None for no display.
    quiet
        Print warnings only.
    force
        Whether the command has the option ``--force``, which the advice to resume excludes.
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
        force: bool = False,
        if_stopped: str = "",
        if_partial: str = "",
        resumable: str = "",
    ) -> None:
        again = f"Rerun the command with --resume{' instead of --force' * force}."
        anew = f"{_RERUN}." if force else f"{_RERUN}, with --resume if the run folder exists."
        self._if_stopped, self._if_partial = if_stopped or anew, if_partial or again
        self._resumable = resumable or f"Finished work is kept. {again}"
        self._view = view
        self._quiet = quiet
        self._stage = ""
        self._computing = False
        self._warnings: set[str] = set()

    def stage(self, text: str) -> None:
        """Print the name of the stage of work that starts now."""
        raise_if_asked_to_stop()
        self._stage = text
        if not self._quiet:
            say(text)

    def finished(self, part: float, of: str = "") -> None:
        """Show which part of the stage that was printed last, or of the work `of`, is finished."""
        raise_if_asked_to_stop()
        if self._view is not None:
            self._view.stage(of or self._stage, part)

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

    def computing(self, work: Workload) -> None:
        """Print what is computed now, and begin to show its progress."""
        letters = amount(work.letters, protein=work.protein)
        known = " (the rest is finished)" * work.resumed
        workers = f"{counted(work.workers, 'worker')} ({work.devices})"
        sequences = counted(work.records, "sequence")
        if work.limit:
            self.stage(work.limit)
        self.stage(f"computing {letters} in {sequences} on {workers}{known}")
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

    def finish(self, outcome: "Outcome") -> None:
        """Print a summary, and the next step for sequences without a result."""
        self.close()
        if not self._quiet:
            for line in summary(outcome):
                say(line)
        if outcome.rows_missing:
            self.warn(
                f"partial: {outcome.records.get('missing', 0):,} sequences have no result yet, "
                f"listed in {outcome.root / 'missing.tsv'}. {self._if_partial}"
            )
        if outcome.expectation and outcome.expectation.warning:
            self.warn(outcome.expectation.warning)
        if outcome.rows_quarantined:
            self.warn(quarantine_warning(outcome))
        if outcome.recomputed:
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


def open_reporter(*, quiet: bool, force: bool = False, **advice: str) -> CommandReporter:
    """Return a progress reporter: bars on a terminal, else lines; only warnings if `quiet`.

    `force` and the optional keyword arguments `if_stopped`, `if_partial` and `resumable` are passed
    to `CommandReporter`.
    """
    return CommandReporter(None if quiet else open_view(), quiet=quiet, force=force, **advice)


def open_view() -> Lines | Bars:
    """Return a display of the progress: bars on a terminal, else lines."""
    return Bars() if sys.stderr.isatty() and find_spec("rich") else Lines()

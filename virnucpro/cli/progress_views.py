"""Views of the progress of a run: bars on a terminal, a line every 10 s elsewhere."""

import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

from virnucpro.console import say

if TYPE_CHECKING:
    from virnucpro.pipeline.jobs.job import Workload
    from virnucpro.runtime.status import WorkerStatus

__all__ = ["Bars", "Lines", "amount", "duration"]

_INTERVAL_S: Final = 10.0
_MILLION: Final = 1_000_000
_WIDE: Final = 130


def amount(letters: float, *, protein: bool = False) -> str:
    """Return a number of bases, or residues of a `protein`, as text such as ``12.4 Mb``."""
    scaled, prefix = (letters / _MILLION, "M") if letters >= _MILLION else (letters / 1000, "k")
    return f"{scaled:,.1f} {prefix}{' residues' if protein else 'b'}"


def duration(seconds: float) -> str:
    """Return a duration as text: ``0:07``, ``12:45`` or ``3:05:00``."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


class _Pace:
    """Amount, rate and time left of a computation, from the rows that its workers have finished.

    The share of the rows stands for the share of bases and sequences, because windows have nearly
    the same length.
    """

    def __init__(self, work: "Workload", clock: Callable[[], float]) -> None:
        self._work = work
        self._clock = clock
        self._started = clock()
        self._first: float | None = None
        self._share = 0.0
        self._share_at_first = 0.0

    def update(self, statuses: "Mapping[int, WorkerStatus]") -> None:
        done = sum(status.done for status in statuses.values())
        self._share = min(1.0, done / max(1, self._work.rows))
        if self._first is None and done:
            self._first, self._share_at_first = self._clock(), self._share

    @property
    def share(self) -> float:
        return self._share

    @property
    def elapsed(self) -> float:
        return self._clock() - self._started

    def text(self, width: int = _WIDE) -> str:
        """Return amount, rate, elapsed time and time left; in two lines below a `width` of 130.

        The time left is unknown if other tasks compute the same work.
        """
        work = self._work
        whole = f"{self._amount(work.letters)}{' of all tasks' * work.shared}"
        parts = [f"{self._amount(self._share * work.letters)} of {whole}"]
        parts.append(f"{round(self._share * work.records):,} of {work.records:,} sequences")
        times = []
        # Models are loaded before the first row: the rate is that of the time after it.
        since = 0.0 if self._first is None else self._clock() - self._first
        gained = self._share - self._share_at_first
        rate = gained / since if since > 0 else 0.0
        if rate > 0:
            times.append(f"{self._amount(rate * work.letters)}/s")
        times.append(f"{duration(self.elapsed)} elapsed")
        if rate > 0 and not work.shared:
            times.append(f"{duration((1 - self._share) / rate)} left")
        separator = ", " if width >= _WIDE else ",\n"
        return separator.join((", ".join(parts), ", ".join(times)))

    def last_line(self) -> str:
        """Return what was computed, and how fast."""
        work, seconds = self._work, max(self.elapsed, 1e-9)
        letters = self._share * work.letters
        return (
            f"computed {self._amount(letters)} in {duration(seconds)} "
            f"({self._amount(letters / seconds)}/s)"
        )

    def _amount(self, letters: float) -> str:
        return amount(letters, protein=self._work.protein)


class Lines:
    """Progress for logs: one line every 10 s."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._next = clock() + _INTERVAL_S
        self._pace: _Pace | None = None

    def read(self, records: int, letters: int, *, protein: bool) -> None:
        """Show how much of the inputs has been read."""
        if self._is_time():
            say(f"read {amount(letters, protein=protein)} in {records:,} sequences")

    def begin(self, work: "Workload") -> None:
        """Begin to show the computation of `work`."""
        self._pace = _Pace(work, self._clock)

    def show(self, statuses: "Mapping[int, WorkerStatus]") -> None:
        """Show the state of the workers, if the last line is old enough."""
        if self._pace is None:
            return
        self._pace.update(statuses)
        if self._is_time():
            workers = ", ".join(f"{rank} {one.state}" for rank, one in sorted(statuses.items()))
            say(f"{self._pace.share:.0%}: {self._pace.text()}; workers: {workers}")

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
        from rich import progress
        from rich.console import Console

        self._console = Console(stderr=True)
        self._progress = progress.Progress(
            progress.TextColumn("{task.description}"),
            progress.BarColumn(bar_width=10),
            progress.TaskProgressColumn(show_speed=False),
            progress.TextColumn("{task.fields[text]}"),
            console=self._console,
            transient=True,
        )
        self._pace: _Pace | None = None
        self._reading: Any = None
        self._whole: Any = None
        self._workers: dict[int, Any] = {}

    def read(self, records: int, letters: int, *, protein: bool) -> None:
        """Show how much of the inputs has been read."""
        text = f"{amount(letters, protein=protein)} in {records:,} sequences"
        if self._reading is None:
            self._reading = self._progress.add_task("reading", total=None, text=text)
            self._progress.start()
        self._progress.update(self._reading, text=text)

    def begin(self, work: "Workload") -> None:
        """Begin to show the computation of `work`."""
        if self._reading is not None:
            self._progress.remove_task(self._reading)
            self._reading = None
        self._pace = _Pace(work, time.monotonic)
        self._whole = self._progress.add_task("all", total=1.0, text="")
        self._progress.start()

    def show(self, statuses: "Mapping[int, WorkerStatus]") -> None:
        """Show the state of the workers."""
        if self._pace is None:
            return
        self._pace.update(statuses)
        text = self._pace.text(self._console.width)
        self._progress.update(self._whole, completed=self._pace.share, text=text)
        for rank, status in sorted(statuses.items()):
            if rank not in self._workers:
                self._workers[rank] = self._progress.add_task(f"worker {rank}", text="")
            self._progress.update(
                self._workers[rank],
                completed=status.done,
                total=status.total or None,
                text=str(status.state),
            )

    def end(self) -> None:
        """Remove the bars, and print what was computed."""
        self._progress.stop()
        if self._pace is not None:
            say(self._pace.last_line())
            self._pace = None

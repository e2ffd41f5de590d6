"""A dispatcher that shows progress: a live table on a terminal, else lines of text.

The table has totals, the workers, and the last errors. It requires the package extra ``ui``.
"""

import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from typing import IO, Any, TextIO, cast

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from virnucpro.console import duration
from virnucpro.dispatch.dispatcher import Dispatcher
from virnucpro.dispatch.worker import BaseWorker

__all__ = ["RichDispatcher"]

LINES_S = 10.0
"""Seconds between two progress lines if the output is not a terminal."""

_BAR_WIDTH = 12
"""Width of a progress bar in characters."""

_STYLES = {
    "initializing": "cyan",
    "idle": "green",
    "processing": "yellow",
    "restarting": "magenta",
    "error": "bold red",
    "finished": "bold green",
}


@dataclass(frozen=True, slots=True)
class Figures:
    """Progress numbers of a dispatcher's run.

    Attributes
    ----------
    completed, failed, timeouts
        Numbers of tasks answered so far, by outcome.
    expected
        Number of tasks of the run, or None if unknown.
    elapsed
        Seconds since the start of the run.
    """

    completed: int
    failed: int
    timeouts: int
    expected: int | None
    elapsed: float

    @classmethod
    def of(cls, stats: Mapping[str, Any], expected: int | None, elapsed: float) -> "Figures":
        """Build `Figures` from `stats`, the result of `Dispatcher.get_stats`."""
        return cls(stats["completed"], stats["failed"], stats["timeouts"], expected, elapsed)

    @property
    def answered(self) -> int:
        """Number of tasks answered so far."""
        return self.completed + self.failed + self.timeouts

    @property
    def n_tasks(self) -> int:
        """Total number of tasks of the run; if unknown, the number of tasks answered so far."""
        return self.answered if self.expected is None else max(self.expected, self.answered)

    @property
    def rate(self) -> float:
        """Throughput in tasks per second."""
        return self.answered / self.elapsed if self.elapsed > 0 else 0.0

    @property
    def left(self) -> float | None:
        """Estimated seconds until the end of the run; None if no estimate is possible yet."""
        if self.expected is None or not self.rate:
            return None
        return max(0, self.expected - self.answered) / self.rate

    @property
    def progress(self) -> str:
        """Number and percentage of the answered tasks, as text."""
        if self.expected is None:
            return f"{self.answered:,} tasks"
        share = 100.0 * self.answered / self.expected if self.expected else 100.0
        return f"{self.answered:,} of {self.expected:,} tasks ({share:.1f} %)"

    @property
    def line(self) -> str:
        """All progress numbers as one line of text."""
        parts = [f"{self.progress}, {self.failed:,} failed, {self.timeouts:,} timed out"]
        parts.append(f"{duration(self.elapsed)} elapsed, {self.rate:,.1f} tasks/s")
        if self.left is not None:
            parts.append(f"{duration(self.left)} left")
        return "; ".join(parts)


def draw(
    stats: Mapping[str, Any], figures: Figures, describe: Callable[[int], str] = "{:,}".format
) -> Group:
    """Return the dashboard as a `rich.console.Group`; `describe` converts a task id to a name."""
    parts: list[RenderableType] = [_overall(figures), _workers(stats["workers"], figures, describe)]
    if stats["recent"]:
        # Text, not markup: errors may contain brackets.
        errors = Text("\n".join(stats["recent"]), overflow="ellipsis", no_wrap=True)
        parts.append(Panel(errors, title="Last errors", border_style="red", title_align="left"))
    return Group(*parts)


def _overall(figures: Figures) -> Panel:
    text = Text.assemble(
        (figures.progress, "bold"),
        "   ",
        (f"{figures.completed:,} done", "green"),
        "   ",
        (f"{figures.failed:,} failed", "red" if figures.failed else "dim"),
        "   ",
        (f"{figures.timeouts:,} timed out", "red" if figures.timeouts else "dim"),
        f"\n{duration(figures.elapsed)} elapsed   {figures.rate:,.1f} tasks/s",
        "" if figures.left is None else f"   {duration(figures.left)} left",
    )
    return Panel(text, title="Tasks", border_style="cyan", title_align="left")


def _workers(
    workers: Mapping[int, Mapping[str, Any]], figures: Figures, describe: Callable[[int], str]
) -> Table:
    table = Table(expand=True)
    table.add_column("Worker", justify="right")
    table.add_column("Status")
    table.add_column("Share")
    for name in ("Task", "For", "Last task", "Done", "Failed", "Timed out", "Deaths"):
        table.add_column(name, justify="right")
    now = time.monotonic()
    for worker_id, worker in workers.items():
        task, since = worker["current_task"], worker["task_start_time"]
        table.add_row(
            str(worker_id),
            Text(worker["status"], style=_STYLES[worker["status"]]),
            _bar(worker["completed"] + worker["failed"] + worker["timeouts"], figures.n_tasks),
            Text("-" if task is None else describe(task), overflow="ellipsis", no_wrap=True),
            "-" if since is None else duration(max(0.0, now - since)),
            "-" if worker["last_duration"] is None else duration(worker["last_duration"]),
            f"{worker['completed']:,}",
            f"{worker['failed']:,}",
            f"{worker['timeouts']:,}",
            f"{worker['deaths']:,}",
        )
    return table


def _bar(answered: int, n_tasks: int) -> ProgressBar:
    """Return a progress bar of one worker: `answered` of the run's `n_tasks` tasks."""
    return ProgressBar(
        total=max(1, n_tasks),
        completed=answered,
        width=_BAR_WIDTH,
        complete_style="cyan",
        finished_style="cyan",
    )


class RichDispatcher:
    """Runs a `Dispatcher` and shows its progress from a separate thread.

    The display does not slow tasks or callbacks: it reads the dispatcher's counts a few times a
    second. It works in any thread, and Ctrl-C stops the run as with a `Dispatcher`.

    Parameters
    ----------
    worker_cls, gpu_ids, queue_size, suppress_worker_output
        As for `Dispatcher`. By default, the output of the workers is discarded, because it would
        disturb the table.
    show_ui
        Whether to show progress.
    refresh_rate
        Updates of the table per second.
    console
        `rich.console.Console` for the display; default: standard error. If the console is not a
        terminal, one line is written every `LINES_S` seconds and at the end.
    describe
        Function that returns the name of a task for the table; default: the task's number.
    **options
        Further options of `Dispatcher`.

    Attributes
    ----------
    dispatcher
        The `Dispatcher` that runs the tasks.

    Raises
    ------
    ValueError
        If `refresh_rate` is not above 0, or an argument of `Dispatcher` is invalid.
    """

    def __init__(
        self,
        worker_cls: type[BaseWorker],
        gpu_ids: Sequence[int] | None = None,
        queue_size: int = 1024,
        show_ui: bool = True,  # noqa: FBT001, FBT002 - the signature that users know
        refresh_rate: float = 2.0,
        console: Console | None = None,
        suppress_worker_output: bool = True,  # noqa: FBT001, FBT002 - the signature that users know
        *,
        describe: Callable[[int], str] = "{:,}".format,
        **options: Any,  # noqa: ANN401 - Dispatcher's own
    ) -> None:
        if refresh_rate <= 0:
            raise ValueError("refresh_rate must be above 0.")
        self.dispatcher = Dispatcher(
            worker_cls, gpu_ids, queue_size, suppress_worker_output, **options
        )
        self._show_ui = show_ui
        self._refresh_rate = refresh_rate
        self._console = console
        self._describe = describe
        self._expected: int | None = None
        self._began = 0.0
        self._ended: float | None = None

    def run(
        self,
        generator: Iterable[Any],
        on_success: Callable[[int, Any, int], object] | None = None,
        *arguments: Any,  # noqa: ANN401 - Dispatcher.run's own
        total_tasks: int | None = None,
        **keywords: Any,  # noqa: ANN401 - Dispatcher.run's own
    ) -> dict[str, Any]:
        """Run all tasks like `Dispatcher.run`, with the same arguments and errors.

        Parameters
        ----------
        generator, *arguments, **keywords
            As for `Dispatcher.run`.
        on_success
            As for `Dispatcher.run`. If it is None, results are discarded.
        total_tasks
            Number of tasks, if known, for the percentage and the remaining time.

        Returns
        -------
        A dict: total, completed, failed, timeouts, setup_failures, start_time and end_time (seconds
        of `time.perf_counter`), expected_total, gpu_status. For each worker id, gpu_status has
        status, current_task, task_start_time, last_duration, completed, failed, timeouts.
        """
        self._expected, self._ended = total_tasks, None
        if self._show_ui:  # the table shows faults
            keywords.setdefault("on_fault", _ignore)
        self._began = time.perf_counter()
        try:
            with self._display():
                self.dispatcher.run(generator, on_success or _ignore, *arguments, **keywords)
        finally:
            self._ended = time.perf_counter()
        return self._result()

    def shutdown(self) -> None:
        """Read no more tasks; the run ends when the tasks in memory are answered.

        See `Dispatcher.shutdown`.
        """
        self.dispatcher.shutdown()

    def terminate(self) -> None:
        """Stop the run immediately; see `Dispatcher.terminate`."""
        self.dispatcher.terminate()

    def get_stats(self) -> dict[str, Any]:
        """Return the state of the run; see `Dispatcher.get_stats`."""
        return self.dispatcher.get_stats()

    def _display(self) -> AbstractContextManager[object]:
        if not self._show_ui:
            return nullcontext()
        stream = None if sys.stderr is None else cast("IO[str]", _SafeStream(sys.stderr))
        console = self._console or Console(file=stream, stderr=True)
        if not console.is_terminal:
            return self._lines(console)
        return Live(
            get_renderable=self._draw, console=console, refresh_per_second=self._refresh_rate
        )

    @contextmanager
    def _lines(self, console: Console) -> Iterator[None]:
        over = threading.Event()

        def write() -> None:
            while not over.wait(LINES_S):
                self._write_line(console)

        writer = threading.Thread(target=write, name="virnucpro-lines", daemon=True)
        writer.start()
        try:
            yield
        finally:
            over.set()
            writer.join()
            self._write_line(console)
            for error in self.dispatcher.get_stats()["recent"]:
                console.print(f"  {error}", markup=False, highlight=False, soft_wrap=True)

    def _write_line(self, console: Console) -> None:
        line = self._figures(self.dispatcher.get_stats()).line
        console.print(line, markup=False, highlight=False, soft_wrap=True)

    def _draw(self) -> Group:
        stats = self.dispatcher.get_stats()
        return draw(stats, self._figures(stats), self._describe)

    def _figures(self, stats: dict[str, Any]) -> Figures:
        return Figures.of(stats, self._expected, time.perf_counter() - self._began)

    def _result(self) -> dict[str, Any]:
        stats = self.dispatcher.get_stats()
        names = ("completed", "failed", "timeouts")
        kept = ("status", "current_task", "task_start_time", "last_duration", *names)
        return {
            "total": sum(stats[name] for name in names),
            **{name: stats[name] for name in (*names, "setup_failures")},
            "start_time": self._began,
            "end_time": self._ended,
            "expected_total": self._expected,
            "gpu_status": {
                worker_id: {name: worker[name] for name in kept}
                for worker_id, worker in stats["workers"].items()
            },
        }


class _SafeStream:
    """A text stream that ignores its write errors: a closed terminal does not stop the run."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def __getattr__(self, name: str) -> object:
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        with suppress(OSError, ValueError):  # ValueError: the stream was closed
            self._stream.write(text)
        return len(text)

    def flush(self) -> None:
        with suppress(OSError, ValueError):
            self._stream.flush()


def _ignore(*_arguments: object) -> None:
    return None

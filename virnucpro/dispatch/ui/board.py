"""The dashboard: totals, a table of the workers, and the last errors."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from rich.console import Group, RenderableType
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from virnucpro.console import duration

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

"""The dashboard: totals, a table of the workers, and the last errors."""

import time
from collections.abc import Callable, Mapping
from typing import Any

from rich.console import Group, RenderableType
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from virnucpro.dispatch.ui.figures import Figures, clock, duration

__all__ = ["draw"]

_BAR_WIDTH = 12
"""Characters."""

_STYLES = {
    "initializing": "cyan",
    "idle": "green",
    "processing": "yellow",
    "restarting": "magenta",
    "error": "bold red",
    "finished": "bold green",
}


def draw(
    stats: Mapping[str, Any], figures: Figures, describe: Callable[[int], str] = "{:,}".format
) -> Group:
    """Return the dashboard of a dispatcher's stats; `describe` returns the name of a task."""
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
        f"\n{clock(figures.elapsed)} elapsed   {figures.rate:,.1f} tasks/s",
        "" if figures.left is None else f"   {clock(figures.left)} left",
    )
    return Panel(text, title="Tasks", border_style="cyan", title_align="left")


def _workers(
    workers: Mapping[int, Mapping[str, Any]], figures: Figures, describe: Callable[[int], str]
) -> Table:
    table = Table(expand=True)
    table.add_column("Worker", justify="right")
    table.add_column("Status")
    table.add_column("Share")
    for name in ("Task", "For", "Last took", "Done", "Failed", "Timed out", "Deaths"):
        table.add_column(name, justify="right")
    now = time.monotonic()
    for worker_id, one in workers.items():
        task, since = one["current_task"], one["task_start_time"]
        table.add_row(
            str(worker_id),
            Text(one["status"], style=_STYLES[one["status"]]),
            _bar(one["completed"] + one["failed"] + one["timeouts"], figures.whole),
            Text("-" if task is None else describe(task), overflow="ellipsis", no_wrap=True),
            duration(None if since is None else max(0.0, now - since)),
            duration(one["last_duration"]),
            f"{one['completed']:,}",
            f"{one['failed']:,}",
            f"{one['timeouts']:,}",
            f"{one['deaths']:,}",
        )
    return table


def _bar(answered: int, whole: int) -> ProgressBar:
    """Return a bar of a worker's share of all tasks: with n equal workers, each ends at 1/n."""
    return ProgressBar(
        total=max(1, whole),
        completed=answered,
        width=_BAR_WIDTH,
        complete_style="cyan",
        finished_style="cyan",
    )

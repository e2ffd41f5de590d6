"""A dispatcher that shows progress: a live table on a terminal, else lines of text."""

import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from typing import IO, Any, TextIO, cast

from rich.console import Console, Group
from rich.live import Live

from virnucpro.dispatch.dispatcher import Dispatcher
from virnucpro.dispatch.ui.board import Figures, draw
from virnucpro.dispatch.worker import BaseWorker

LINES_S = 10.0
"""Seconds between two progress lines if the output is not a terminal."""


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
        answers = stats["completed"], stats["failed"], stats["timeouts"]
        return Figures(*answers, self._expected, time.perf_counter() - self._began)

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

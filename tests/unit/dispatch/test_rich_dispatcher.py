"""The dispatcher with a progress display."""

import errno
import io
import re
import sys
import threading
import time

import pytest
from rich.console import Console

from virnucpro.dispatch.ui import Figures, RichDispatcher, draw

pytestmark = pytest.mark.timeout(60)

FAILING = [*range(20), ("raise_", ValueError("[bold]no")), ("sleep", 60), ("kill",), *range(20)]


def terminal():
    return Console(file=io.StringIO(), force_terminal=True, width=110, record=True)


@pytest.fixture
def screen():
    return terminal()


def failing_run(workers, screen, **options):
    """Run tasks some of which fail; return the stats."""
    dispatcher = RichDispatcher(workers.Worker, [0, 1], console=screen, **options)
    before = time.perf_counter()
    stats = dispatcher.run(FAILING, total_tasks=43, task_timeout=0.3)
    assert before <= stats.pop("start_time") < stats.pop("end_time") <= time.perf_counter()
    return stats


@pytest.fixture(scope="module")
def shown(workers):
    """The stats of such a run, and what its screen showed."""
    screen = terminal()
    return failing_run(workers, screen), screen.export_text()


def assert_complete(stats):
    status = stats["gpu_status"]
    assert stats == {
        "total": 43,
        "completed": 40,
        "failed": 2,
        "timeouts": 1,
        "setup_failures": 0,
        "expected_total": 43,
        "gpu_status": status,
    }
    assert set(status) == {0, 1}
    for one in status.values():
        assert one["status"] == "finished"
        assert one["last_duration"] is not None
        assert (one["current_task"], one["task_start_time"]) == (None, None)
    assert sum(one["completed"] for one in status.values()) == 40


def test_the_stats_are_complete(shown):
    stats, _ = shown
    assert_complete(stats)


@pytest.mark.slow
def test_the_stats_are_complete_without_a_display(workers, screen):
    assert_complete(failing_run(workers, screen, show_ui=False))
    assert screen.export_text() == ""


def test_the_table_shows_tasks_workers_and_errors(shown):
    _, text = shown
    last = text[text.rindex("Tasks") :]
    assert "43 of 43 tasks (100.0 %)" in last
    assert "40 done   2 failed   1 timed out" in last
    assert last.count("finished") == 2
    assert "task 20: ValueError: [bold]no" in last
    assert "task 21: exceeded its limit of 0.3 s" in last
    assert "was killed by SIGKILL" in last


def test_each_worker_has_a_bar_of_its_share(screen):
    one = {
        **dict.fromkeys(("current_task", "task_start_time", "last_duration")),
        **dict.fromkeys(("failed", "timeouts", "deaths"), 0),
        "status": "idle",
    }
    workers = {0: {**one, "completed": 25}, 1: {**one, "completed": 50}, 2: {**one, "completed": 0}}
    for figures, shares in (
        (Figures(75, 0, 0, 100, 1.0), [3, 6, 0]),
        (Figures(75, 0, 0, None, 1.0), [4, 8, 0]),
    ):
        screen.print(draw({"workers": workers, "recent": []}, figures))
        lines = screen.export_text(styles=True).splitlines()
        bars = [line for line in lines if "idle" in line]
        done = [sum(map(len, re.findall(r"\x1b\[36m(━+)", line))) for line in bars]
        assert done == shares
        assert all(len(re.findall("[━╸╺]", line)) == 12 for line in bars)


def test_a_failing_gpu_is_shown_while_the_other_works(workers, screen):
    dispatcher = RichDispatcher(workers.SetupRaises, [0, 1], console=screen, refresh_rate=20)
    stats = dispatcher.run(
        [("sleep", 0.02)] * 30, bad=[1], how=("raise_", OSError("no such device"))
    )
    assert stats["setup_failures"] == 1
    assert stats["gpu_status"][1]["status"] == "error"
    shown = screen.export_text()
    assert "processing" in shown
    assert "worker 1, setup: OSError: no such device" in shown


def test_lines_without_a_terminal(workers, monkeypatch):
    monkeypatch.setattr("virnucpro.dispatch.ui.LINES_S", 0.1)
    console = Console(file=io.StringIO(), width=40)
    RichDispatcher(workers.Worker, [0], console=console).run(
        [("sleep", 0.1), ("raise_", ValueError("[red]")), ("sleep", 0.1)], total_tasks=3
    )
    lines = console.file.getvalue().splitlines()
    assert len(lines) > 2
    assert lines[-2].startswith("3 of 3 tasks (100.0 %), 1 failed, 0 timed out; ")
    assert lines[-1] == "  task 1: ValueError: [red]"
    assert "\x1b" not in console.file.getvalue()


def test_a_run_in_a_thread_with_callbacks(workers, screen):
    seen = []

    def run():
        RichDispatcher(workers.Worker, [0], console=screen).run(
            [1, 2],
            lambda *answer: seen.append(answer),
            on_task_start=lambda *start: seen.append(start),
            on_exit=lambda: seen.append("exit"),
        )

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    assert sorted(map(repr, seen)) == sorted(
        map(repr, [(0, 0), (0, 1, 0), (1, 0), (1, 2, 0), "exit"])
    )


def test_errors_are_raised_and_the_terminal_is_restored(workers, screen):
    def fail(*_):
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        RichDispatcher(workers.Worker, [0], console=screen).run([1], fail)
    assert screen.file.getvalue().endswith("\x1b[?25h")  # the cursor is shown again


def test_the_refresh_rate_must_be_positive(workers):
    with pytest.raises(ValueError, match="above 0"):
        RichDispatcher(workers.Worker, [0], refresh_rate=0)


def test_figures():
    figures = Figures(completed=30, failed=8, timeouts=2, expected=100, elapsed=20.0)
    assert (figures.answered, figures.rate, figures.left) == (40, 2.0, 30.0)
    assert figures.line == (
        "40 of 100 tasks (40.0 %), 8 failed, 2 timed out; 20 s elapsed, 2.0 tasks/s; 30 s left"
    )
    assert Figures(0, 0, 0, 0, 0.0).left is None


class FullDisk(io.StringIO):
    """A stream that cannot be written."""

    terminal = False

    def isatty(self):
        return self.terminal

    def write(self, _text):
        raise OSError(errno.ENOSPC, "No space left on device")


@pytest.mark.parametrize("terminal", [True, False])
def test_a_broken_standard_error_does_not_stop_a_run(workers, monkeypatch, terminal):
    stream = FullDisk()
    stream.terminal = terminal
    monkeypatch.setattr(sys, "stderr", stream)
    stats = RichDispatcher(workers.Worker, [0]).run([1, 2, 3])
    assert stats["completed"] == 3

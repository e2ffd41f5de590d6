"""Row 20: clocks that jump. Durations and deadlines come from monotonic clocks."""

import re
from pathlib import Path

import virnucpro
from virnucpro.run.reporter import Lines, Workload
from virnucpro.runtime.messages import Started
from virnucpro.runtime.status import Death, WorkerState, WorkerStatus, after_exit, after_message

PACKAGE = Path(virnucpro.__file__).parent
SETTABLE = {"time.time", "time.time_ns", "time.localtime", "time.ctime", "datetime.today"}
LABELS = {"compute/rank_launch.py", "run/creation.py", "runtime/events.py"}
LABELS |= {"report/html/content.py"}
"""Functions that write the time of an event for people."""


def calls(path):
    return re.findall(r"\b([\w.]+)\(", path.read_text())


def test_no_module_measures_time_with_a_settable_clock():
    found = {
        (path.relative_to(PACKAGE).as_posix(), call)
        for path in PACKAGE.rglob("*.py")
        for call in calls(path)
        if call in SETTABLE or call.endswith("datetime.now")
    }
    assert {call for _, call in found} <= {"datetime.now"}
    assert {path for path, _ in found} <= LABELS


class Clock:
    def __init__(self):
        self.now = 1000.0

    def __call__(self):
        return self.now


def test_progress_lines_are_printed_every_10_s_and_after_a_suspend(capsys):
    clock = Clock()
    lines = Lines(clock)
    lines.begin(Workload(4, 2000, 9, 1, protein=False, resumed=False))
    status = {0: WorkerStatus(0, WorkerState.RUNNING, 1, 0.0, 0.0, done=3, total=9)}

    def shown():
        lines.show(status)
        return capsys.readouterr().err.count("; worker 0 running")

    clock.now += 9.9
    assert shown() == 0
    clock.now += 0.2
    assert shown() == 1
    assert shown() == 0
    clock.now += 86_400.0  # suspended for a day: one line, not one for each ten seconds
    assert [shown(), shown()] == [1, 0]


def test_a_heartbeat_after_a_suspend_counts():
    starting = WorkerStatus(0, WorkerState.STARTING, 1, 1000.0, 1000.0)
    running = after_message(starting, Started(), 1000.0 + 86_400)
    assert running.last_heartbeat - running.started_at == 86_400
    ended = after_exit(running, Death(0), 1000.0 + 86_401)
    assert ended.ended_at >= ended.last_heartbeat >= ended.started_at

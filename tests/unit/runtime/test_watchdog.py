"""Silence, deadlines and the ladder, with a clock that is told."""

from dataclasses import replace

import pytest

from virnucpro.runtime.deadlines import NEVER, Deadlines, limit_of
from virnucpro.runtime.messages import Finished, Mark, Progress, Report, Started
from virnucpro.runtime.status import WorkerState, WorkerStatus, after_message, moved_on
from virnucpro.runtime.watchdog import Graces, Measure, Watchdog

DEADLINES = Deadlines(start=100.0, progress=10.0, stop=5.0)
NEW = WorkerStatus(0, WorkerState.RUNNING, 4711, started_at=0.0, last_heartbeat=0.0)
AT_WORK = replace(NEW, begun={0: 3})
STACKS, TERMINATE, KILL, ABANDON = Measure


@pytest.fixture
def watch():
    watch = Watchdog(DEADLINES, Graces(stacks=1.0, terminate=5.0, kill=10.0))
    watch.begin(0, 0.0)
    return watch


def measures(watch, status, now):
    return [step.measure for step in watch.steps({0: status}, now)]


@pytest.mark.parametrize(
    ("status", "limit"),
    [
        (NEW, 100.0),
        (replace(NEW, done=5, total=9), 100.0),
        (AT_WORK, 10.0),
        (replace(AT_WORK, returned=True), 5.0),
    ],
)
def test_which_deadline_holds(status, limit, watch):
    assert limit_of(status, DEADLINES)[0] == limit
    assert measures(watch, status, limit - 0.1) == []
    assert measures(watch, status, limit) == [STACKS]


def test_nobody_is_late_without_deadlines():
    watch = Watchdog(NEVER, Graces(1.0, 5.0, 10.0))
    watch.begin(0, 0.0)
    assert watch.idle
    assert measures(watch, AT_WORK, 1e9) == []


def test_each_measure_is_taken_once_and_at_its_time(watch):
    times = {now: measures(watch, AT_WORK, now) for now in (10, 10.9, 11, 15.9, 16, 25.9, 26, 99)}
    assert {now: taken for now, taken in times.items() if taken} == {
        10: [STACKS],
        11: [TERMINATE],
        16: [KILL],
        26: [ABANDON],
    }


def test_progress_lets_off_one_that_was_not_yet_asked_to_end(watch):
    assert measures(watch, AT_WORK, 10.0) == [STACKS]
    assert watch.heard(0, 10.5)
    assert measures(watch, AT_WORK, 20.4) == []
    assert measures(watch, AT_WORK, 20.5) == [STACKS]
    assert measures(watch, AT_WORK, 21.5) == [TERMINATE]
    assert not watch.heard(0, 21.6)
    assert measures(watch, AT_WORK, 26.5) == [KILL]


def test_a_time_in_which_nobody_watched_is_charged_to_nobody(watch):
    watch.excuse(3600.0)
    assert measures(watch, AT_WORK, 3609.0) == []
    assert measures(watch, AT_WORK, 3610.0) == [STACKS]
    watch.excuse(60.0)
    assert measures(watch, AT_WORK, 3612.0) == []
    assert measures(watch, AT_WORK, 3671.0) == [TERMINATE]


def test_one_that_is_not_needed_is_ended_without_being_late(watch):
    watch.dismiss(0)
    assert not watch.idle
    assert measures(watch, AT_WORK, 0.5) == [TERMINATE]
    watch.forget(0)
    assert measures(watch, AT_WORK, 1e6) == []


@pytest.mark.parametrize(
    ("message", "moves"),
    [
        (Started(), False),
        (Progress(5, 9), False),
        (Progress(6, 9), True),
        (Progress(5, 10), True),
        (Mark((0, 0, 0, 8)), True),
        (Report(b""), False),
        (Finished(), True),
    ],
)
def test_what_counts_as_progress(message, moves):
    before = replace(AT_WORK, done=5, total=9)
    assert moved_on(before, after_message(before, message, 1.0)) == moves

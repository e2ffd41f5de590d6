"""Workers that get no further: for real, and to the pure part by a clock that is told."""

import os
import signal
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from virnucpro.dispatch import Dispatcher, standstills
from virnucpro.dispatch.standstills import STACKS_GRACE_S, Pulse, Standstills
from virnucpro.runtime.watchdog import Measure

pytestmark = pytest.mark.timeout(60)
LIMIT = 0.6
NEVER_ENDING = ("sleep_on", "loop_on", "stop")


@pytest.fixture(autouse=True)
def short_grace(monkeypatch):
    monkeypatch.setattr(standstills, "STACKS_GRACE_S", 0.5)


def test_who_gets_no_further_is_ended_and_who_is_slow_is_not(workers, record, tmp_path):
    slow = [("slowly", 15, 0.1), ("slowly_in_a_thread", 15, 0.1)]
    tasks = [1, *slow, *((how,) for how in NEVER_ENDING), *range(20)]
    dispatcher = Dispatcher(
        workers.Worker,
        range(5),
        max_attempts=1,
        progress_timeout=LIMIT,
        one_at_a_time=True,
        log_folder=tmp_path,
    )
    dispatcher.run(tasks, **record.callbacks)
    record.assert_each_answered_once(26)
    assert sorted(record.errors) == [3, 4, 5]
    for number, how in zip((3, 4, 5), NEVER_ENDING, strict=True):
        said = record.errors[number]
        assert f"was ended: it made no progress within {LIMIT} s (its output: " in said
        log = Path(said.partition("its output: ")[2].partition(")")[0]).read_text()
        assert (f"in {how}" in log) == (how != "stop")
    assert sorted(fault.task_id for fault in record.faults) == [3, 4, 5]
    assert record.successes[1] == record.successes[2] == 15


def test_what_hung_is_begun_again(workers, record, tmp_path):
    tasks = [0, ("sleep_on_once", str(tmp_path / "mark")), 2]
    Dispatcher(workers.ImpatientWorker, [0]).run(tasks, **record.callbacks)
    record.assert_each_answered_once(3)
    assert record.successes[1] == "second attempt"
    [(task, attempt, why, _)] = record.retries
    assert (task, attempt) == (1, 1)
    assert "it made no progress within 0.5 s" in why


def test_a_worker_that_was_stopped_before_it_began_is_charged_with_no_task(workers, record):
    callbacks = record.callbacks
    answer = callbacks["on_success"]

    def on_success(task_id, result, worker_id):
        if task_id == 0:
            os.kill(result[2], signal.SIGSTOP)
        answer(task_id, result, worker_id)

    Dispatcher(workers.Worker, [0], 1, progress_timeout=LIMIT).run(
        [("whoami",), 1, 2], **(callbacks | {"on_success": on_success})
    )
    record.assert_each_answered_once(3)
    assert record.errors == {}
    assert record.retries == []
    [fault] = record.faults
    assert fault.task_id is None
    assert "it made no progress" in fault.how


def test_nobody_is_charged_with_a_stop_of_all(workers, record, tmp_path):
    """Parent and worker stand still for longer than the limit: not even stacks are asked for."""
    pids = {}
    callbacks = record.callbacks
    answer = callbacks["on_success"]

    def on_success(task_id, result, worker_id):
        answer(task_id, result, worker_id)
        if task_id < 2:
            pids[worker_id] = result[2]
        elif task_id == 3:
            other = pids[1 - worker_id]
            os.kill(other, signal.SIGSTOP)
            time.sleep(1.2)
            os.kill(other, signal.SIGCONT)

    Dispatcher(
        workers.Worker,
        [0, 1],
        progress_timeout=1.0,
        one_at_a_time=True,
        log_folder=tmp_path,
    ).run(
        [("whoami",), ("whoami",), ("silently", 8, 0.05), ("sleep", 0.1)],
        **(callbacks | {"on_success": on_success}),
    )
    record.assert_each_answered_once(4)
    assert len(pids) == 2
    assert record.faults == []
    assert [log.read_text() for log in tmp_path.iterdir()] == ["", ""]


def test_what_is_in_transit_gets_on(workers, record):
    """A result and a task of many pipefuls; each waits for the parent, which takes one a look."""
    Dispatcher(workers.Worker, range(3), progress_timeout=LIMIT, one_at_a_time=True).run(
        [("big", 20 << 20), ("length", bytes(20 << 20)), *range(80)],
        **record.slow_callbacks(0.03),
    )
    record.assert_each_answered_once(82)
    assert (record.faults, record.errors) == ([], {})


def test_a_result_has_the_limit_to_be_pickled_in(workers, record):
    Dispatcher(workers.Worker, [0], progress_timeout=LIMIT).run(
        [("slow_to_pickle", 0.7)], **record.callbacks
    )
    record.assert_each_answered_once(1)
    assert (record.faults, record.errors) == ([], {})


def test_a_worker_that_is_stopped_while_its_result_travels_is_ended(workers, record):
    Dispatcher(workers.Worker, [0], progress_timeout=LIMIT, max_attempts=1).run(
        [("stop_on_the_way", 20 << 20), 1], **record.callbacks
    )
    record.assert_each_answered_once(2)
    assert list(record.errors) == [0]
    assert "it made no progress" in record.errors[0]


def test_slow_callbacks_stretch_no_deadline(workers, record):
    """Two callbacks long until the worker is asked for its stacks, two more until it is killed."""
    seen = []
    Dispatcher(
        workers.Worker, [0, 1], progress_timeout=0.5, one_at_a_time=True, max_attempts=1
    ).run(
        [("sleep_on",), *range(10)],
        **record.slow_callbacks(0.25) | {"on_fault": lambda _: seen.append(len(record.successes))},
    )
    record.assert_each_answered_once(11)
    [answered] = seen
    assert answered < 8


@pytest.mark.parametrize("limit", [0, -1.0, float("nan"), float("inf")])
@pytest.mark.parametrize("name", ["progress_timeout", "setup_timeout", "cleanup_timeout"])
def test_a_deadline_that_is_none_is_refused(workers, name, limit):
    with pytest.raises(ValueError, match=f"^{name} must be"):
        Dispatcher(workers.Worker, [0], **{name: limit})


@pytest.mark.parametrize("limit", [0, float("nan"), float("inf")])
def test_a_time_limit_of_tasks_that_is_none_is_refused(workers, record, limit):
    with pytest.raises(ValueError, match="task_timeout must be"):
        Dispatcher(workers.Worker, [0]).run([1], task_timeout=limit, **record.callbacks)


def test_without_a_dispatcher_nobody_hears_of_progress(workers):
    assert workers.Worker().slowly(2, 0.0) == 2


# --- by a clock that is told


@given(
    st.lists(st.tuples(st.floats(0.0, 50.0), st.booleans(), st.booleans()), max_size=40),
    st.floats(0.5, 9.0),
)
def test_who_gets_on_within_the_limit_is_let_be(steps, limit):
    """However seldom anybody looks; a look that finds nothing new comes early enough."""
    watch = Standstills(limit)
    now, silent, number = 1e6, 0.0, 0
    watch.steps({0: Pulse(0, 1, 0.0)}, now)
    for pause, asleep, progressed in steps:
        charged = min(pause, 2 * watch.tick if asleep else limit / 2)
        silent = 0.0 if progressed else silent + charged
        if silent >= 0.999 * limit:
            break
        now, number = now + pause, number + progressed
        pulses = {0: Pulse(0, 1, float(number))}
        assert watch.steps(pulses, now, away=0.0 if asleep else pause) == []


@given(
    st.integers(0, 2),
    st.floats(0.5, 900.0),
    st.lists(st.floats(0.01, 0.09), min_size=1, max_size=9),
)
def test_who_stands_still_is_asked_for_its_stacks_and_then_ended(which, limit, pauses):
    """The other workers get on meanwhile, each in a way of its own."""
    watch, found = Standstills(limit), []
    began = now = 5.0
    for look in range(10_000):
        pulses = {n: Pulse(*(look * (kind == n) for kind in range(3))) for n in range(3)}
        pulses[which] = Pulse(0, 0, 0.0)
        found += [(step, now) for step in watch.steps(pulses, now)]
        if len(found) == 2:
            break
        now += limit * pauses[look % len(pauses)]
    (ask, asked_at), (end, ended_at) = found
    assert (ask.rank, ask.measure) == (which, Measure.ASK_FOR_STACKS)
    assert (end.rank, end.measure) == (which, Measure.KILL)
    assert asked_at - began >= limit * 0.999
    assert ended_at > asked_at


def test_nobody_is_charged_with_time_in_which_the_parent_stood_still():
    watch, pulses = Standstills(10.0), {0: Pulse(0, 1, 0.0)}
    assert watch.steps(pulses, 0.0) == []
    assert watch.steps(pulses, 1e6) == []
    assert watch.steps(pulses, 1e6 + 1) == []
    assert watch.steps(pulses, 2e6) == []
    now = 2e6
    while not (found := watch.steps(pulses, now := now + 1)):
        assert now < 2e6 + 10
    assert found[0].measure is Measure.ASK_FOR_STACKS


def test_the_parents_own_work_counts_half_a_limit_at_most():
    """One callback is no reason to end anybody, several are: who moves shows it after the first."""
    watch, pulses = Standstills(600.0), {0: Pulse(0, 1, 0.0)}
    times = [60.0 * number for number in range(12)]
    found = [watch.steps(pulses, now, away=59.5) for now in times]
    assert [bool(steps) for steps in found] == [False] * 10 + [True] * 2
    watch = Standstills(600.0)
    found = [watch.steps(pulses, 1e5 * number, away=1e5) for number in range(4)]
    assert [[step.measure for step in steps] for steps in found] == [
        [],
        [],
        [Measure.ASK_FOR_STACKS],
        [Measure.KILL],
    ]


def test_who_gets_on_before_it_is_ended_is_let_off():
    watch = Standstills(1.0)
    times = [0.1 * number for number in range(11)]
    looks = [watch.steps({0: Pulse(0, 1, 0.0)}, now) for now in times]
    assert [step.measure for look in looks for step in look] == [Measure.ASK_FOR_STACKS]
    assert watch.steps({0: Pulse(0, 1, 1.0)}, 1.05) == []
    assert watch.steps({0: Pulse(0, 1, 1.0)}, 1.1 + STACKS_GRACE_S / 10) == []


def test_who_has_no_tasks_may_be_silent_for_ever():
    watch = Standstills(1.0)
    for number in range(100):
        has_tasks = number % 5 == 0
        assert watch.steps({0: Pulse(7, -7, 0.0)} if has_tasks else {}, number / 5) == []

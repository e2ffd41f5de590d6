"""Workers without progress, as real processes."""

import os
import signal
import time
from pathlib import Path

import pytest

from virnucpro.dispatch import Dispatcher

pytestmark = pytest.mark.timeout(60)
LIMIT = 0.6
NEVER_ENDING = (
    ("sleep_on",),
    ("loop_on",),
    ("stop",),
    ("stop_on_the_way", 20 << 20),  # in the middle of a result
)


def test_a_hung_worker_is_ended_and_a_slow_one_is_not(workers, record, tmp_path):
    slow = [("slowly", 15, 0.1), ("slowly_in_a_thread", 15, 0.1)]
    tasks = [1, *slow, *NEVER_ENDING, *range(20)]
    dispatcher = Dispatcher(
        workers.Worker,
        range(6),
        max_attempts=1,
        progress_timeout=LIMIT,
        log_folder=tmp_path,
    )
    dispatcher.run(tasks, **record.callbacks)
    record.assert_each_answered_once(27)
    assert sorted(record.errors) == [3, 4, 5, 6]
    for number, (how, *_) in enumerate(NEVER_ENDING, start=3):
        error = record.errors[number]
        assert f"was stopped because it made no progress within {LIMIT} s (its output: " in error
        log = Path(error.partition("its output: ")[2].partition(")")[0]).read_text()
        assert (f"in {how}" in log) == (not how.startswith("stop"))
    assert sorted(fault.task_id for fault in record.faults) == [3, 4, 5, 6]
    assert record.successes[1] == record.successes[2] == 15


def test_a_task_that_hung_is_retried(workers, record, tmp_path):
    tasks = [0, ("sleep_on_once", str(tmp_path / "mark")), 2]
    Dispatcher(workers.ImpatientWorker, [0]).run(tasks, **record.callbacks)
    record.assert_each_answered_once(3)
    assert record.successes[1] == "second attempt"
    [(task, attempt, why, _)] = record.retries
    assert (task, attempt) == (1, 1)
    assert "it made no progress within 0.5 s" in why


def test_no_task_is_charged_with_a_hang_before_its_start(workers, record):
    def stop_worker(task_id, result, _):
        if task_id == 0:
            os.kill(result[2], signal.SIGSTOP)

    Dispatcher(workers.Worker, [0], 1, progress_timeout=LIMIT).run(
        [("whoami",), 1, 2], **record.callbacks_before(stop_worker)
    )
    record.assert_each_answered_once(3)
    assert record.errors == {}
    assert record.retries == []
    [fault] = record.faults
    assert fault.task_id is None
    assert "it made no progress" in fault.how


def test_a_stop_of_parent_and_worker_does_not_count(workers, record, tmp_path):
    """Both stop for longer than the limit: no stacks are requested either."""
    pids = {}

    def generate():
        while len(pids) < 2:
            yield ("whoami",)
        yield from [("silently", 8, 0.05), ("sleep", 0.1)]

    def stop_both(_, result, worker_id):
        if isinstance(result, tuple):
            pids[worker_id] = result[2]
        elif result == 0.1:
            other = pids[1 - worker_id]
            os.kill(other, signal.SIGSTOP)
            time.sleep(1.2)
            os.kill(other, signal.SIGCONT)

    Dispatcher(workers.Worker, [0, 1], progress_timeout=1.0, log_folder=tmp_path).run(
        generate(), **record.callbacks_before(stop_both)
    )
    record.assert_each_answered_once(len(record.answers))
    assert record.faults == []
    assert [log.read_text() for log in tmp_path.iterdir()] == ["", ""]


def test_bytes_in_transit_are_progress(workers, record):
    """A result and a task of many pipe buffers wait for a slow parent."""
    Dispatcher(workers.Worker, range(3), progress_timeout=LIMIT).run(
        [("big", 20 << 20), ("length", bytes(20 << 20)), *range(80)],
        **record.slow_callbacks(0.03),
    )
    record.assert_each_answered_once(82)
    assert (record.faults, record.errors) == ([], {})


def test_pickling_of_a_result_has_its_own_deadline(workers, record):
    Dispatcher(workers.Worker, [0], progress_timeout=LIMIT).run(
        [("slow_to_pickle", 0.7)], **record.callbacks
    )
    record.assert_each_answered_once(1)
    assert (record.faults, record.errors) == ([], {})


@pytest.mark.slow
def test_slow_callbacks_do_not_extend_deadlines(workers, record):
    """It takes two callbacks until the stacks are requested, and two more until the kill."""
    seen = []
    Dispatcher(workers.Worker, [0, 1], progress_timeout=0.5, max_attempts=1).run(
        [("sleep_on",), *range(20)],
        **record.slow_callbacks(0.25) | {"on_fault": lambda _: seen.append(len(record.successes))},
    )
    record.assert_each_answered_once(21)
    [answered] = seen
    assert answered < 15


@pytest.mark.parametrize("limit", [0, -1.0, float("nan"), float("inf"), "5"])
@pytest.mark.parametrize("name", ["progress_timeout", "setup_timeout", "cleanup_timeout"])
def test_an_invalid_deadline_is_rejected(workers, name, limit):
    with pytest.raises(ValueError, match=f"^{name} must be"):
        Dispatcher(workers.Worker, [0], **{name: limit})


@pytest.mark.parametrize("limit", [0, float("nan"), float("inf")])
def test_an_invalid_task_timeout_is_rejected(workers, record, limit):
    with pytest.raises(ValueError, match="task_timeout must be"):
        Dispatcher(workers.Worker, [0]).run([1], task_timeout=limit, **record.callbacks)


def test_progressed_does_nothing_without_a_dispatcher(workers):
    assert workers.Worker().slowly(2, 0.0) == 2

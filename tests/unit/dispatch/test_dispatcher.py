"""The dispatcher with real processes: every task gets one answer."""

import contextlib
import os
import random
import signal
import sys
import threading
import time
from multiprocessing import active_children
from pathlib import Path

import pytest
from cases import mostly_slow, slow, table
from programs import in_a_fork

from virnucpro.dispatch import BaseWorker, Dispatcher
from virnucpro.dispatch.protocol import CleanupFailed, WorkerDied
from virnucpro.errors import UsageError, WorkerError
from virnucpro.runtime import supervisor
from virnucpro.runtime.process import SpawnProcess

pytestmark = pytest.mark.timeout(60)


def run(workers, record, tasks, gpu_ids=(0, 1), worker="Worker", options=None, **keywords):
    dispatcher = Dispatcher(getattr(workers, worker), list(gpu_ids), **(options or {}))
    dispatcher.run(iter(tasks), **record.callbacks, **keywords)
    return dispatcher


def open_files():
    files = []
    for link in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):  # the listing itself
            files.append(str(link.readlink()))
    return files


def answers_of(method, tasks, record):
    """Return the results of the tasks that call `method`."""
    return [record.successes[number] for number, task in enumerate(tasks) if task[0] == method]


# --- without faults


@pytest.mark.parametrize("gpu_ids", [[-1, -1], slow([-1, 0, -1, 0]), slow([-2, 1])])
def test_negative_gpu_ids_get_distinct_workers(workers, record, gpu_ids):
    tasks = [("whoami",), ("sleep", 0.1)] * (10 * len(gpu_ids))
    run(workers, record, tasks, gpu_ids=gpu_ids)
    record.assert_each_answered_once(len(tasks))
    assert len(record.workers) == len(gpu_ids)
    assert {one[0] for one in answers_of("whoami", tasks, record)} == set(gpu_ids)


def test_every_task_is_answered_once_with_its_result(workers, record):
    dispatcher = run(workers, record, range(5000))
    record.assert_each_answered_once(5000)
    assert record.successes == {n: n for n in range(5000)}
    stats = dispatcher.get_stats()
    assert (stats["completed"], stats["pending"], stats["running"]) == (5000, 0, 0)
    assert sum(one["completed"] for one in stats["workers"].values()) == 5000


def test_a_worker_gets_its_device_its_seed_and_the_keywords(workers, record):
    """Workers on one device differ in id and seed."""
    tasks = [("whoami",), ("sleep", 0.1)] * 20
    run(workers, record, tasks, gpu_ids=[1, 1, 0], base_seed=7, path="weights")
    assert set(record.workers) == {0, 1, 3}
    answers = answers_of("whoami", tasks, record)
    assert {one[:2] for one in answers} == {(1, 8), (1, 10), (0, 7)}
    assert all(one[3] == {"path": "weights"} for one in answers)


def test_with_devices_a_worker_sees_only_its_own(workers, record, monkeypatch):
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    dispatcher = Dispatcher(workers.Worker, devices=["3", "GPU-0af"])
    tasks = [("environment", "CUDA_VISIBLE_DEVICES"), ("sleep", 0.1)] * 20
    dispatcher.run(tasks, **record.callbacks)
    assert set(answers_of("environment", tasks, record)) == {"3", "GPU-0af"}


def test_an_empty_stream_is_not_an_error(workers, record):
    run(workers, record, [], gpu_ids=[0])
    record.assert_each_answered_once(0)


def test_each_start_is_reported_once_while_the_task_runs(workers):
    starts, answers = [], []
    Dispatcher(workers.Worker, [0]).run(
        [*range(500), ("sleep", 0.6)],
        on_success=lambda task_id, *_: answers.append((task_id, time.monotonic())),
        on_task_start=lambda task_id, _: starts.append((task_id, time.monotonic())),
    )
    assert [task_id for task_id, _ in starts] == [*range(501)]
    began, ended = dict(starts), dict(answers)
    assert all(began[task_id] <= ended[task_id] for task_id in range(501))
    assert ended[500] - began[500] > 0.3


def test_an_outcome_has_the_duration_of_its_task(workers):
    outcomes = list(Dispatcher(workers.Worker, [0]).imap([0, ("sleep", 0.6), 0]))
    assert outcomes[1].seconds >= 0.6
    assert max(outcomes[0].seconds, outcomes[2].seconds) < 0.5


@pytest.mark.parametrize("queue_size", mostly_slow([1, 3, 64, 1024], 3))
def test_the_generator_never_exceeds_the_queue_size(workers, queue_size):
    taken = delivered = lead = 0

    def generate():
        nonlocal taken, lead
        for number in range(600):
            taken += 1
            lead = max(lead, taken - delivered)
            yield number

    def deliver(*_):
        nonlocal delivered
        delivered += 1

    Dispatcher(workers.Worker, [0, 1], queue_size).run(generate(), deliver)
    assert delivered == 600
    assert lead <= queue_size


def test_a_slow_generator_does_not_delay_answers(workers):
    came = []

    def generate():
        for number in range(5):
            yield number
            time.sleep(0.2)
            assert len(came) >= number, "an answer waits for the next task"

    Dispatcher(workers.Worker, [0]).run(generate(), lambda *answer: came.append(answer))
    assert len(came) == 5


def test_ordered_answers(workers, record):
    tasks = [("sleep", 0.2), *range(300), ("raise_", ValueError("no")), *range(50)]
    run(workers, record, tasks, options={"ordered": True, "queue_size": 64})
    assert list(record.answers) == list(range(352))


def test_map_yields_lazily_in_order(workers):
    taken = []

    def generate():
        for number in range(10_000):
            taken.append(number)
            yield number

    with Dispatcher(workers.Worker, [0, 1], queue_size=50) as dispatcher:
        results = dispatcher.map(generate())
        assert [next(results) for _ in range(100)] == list(range(100))
        assert len(taken) <= 151
        results.close()
        assert list(dispatcher.map(["a", "b"])) == ["a", "b"]


def test_map_raises_instead_of_a_failed_result(workers):
    results = Dispatcher(workers.Worker, [0]).map([1, ("raise_", KeyError("k")), 3])
    assert next(results) == 1
    with pytest.raises(
        WorkerError, match=r"task 1 failed on worker 0: (?s:.*)KeyError: 'k'\n(?s:.*)use imap"
    ):
        next(results)
    assert list(results) == []


@pytest.mark.parametrize("ordered", [slow(False), True])
def test_every_task_has_one_outcome_that_says_what_happened(workers, ordered):
    odd = {
        100: (("raise_", KeyError("k")), "error", "KeyError: 'k'"),
        120: (lambda: None, "error", "<lambda>"),
        140: (("lambda_",), "error", "<lambda>"),
        200: (("kill",), "died", "was killed by SIGKILL"),
        220: (("unusable",), "died", "the device is lost for good"),
    }
    tasks = [odd[n][0] if n in odd else n for n in range(300)]
    dispatcher = Dispatcher(workers.Worker, [0, 1], ordered=ordered)
    outcomes = list(dispatcher.imap(tasks))
    numbers = [one.number for one in outcomes]
    assert (numbers if ordered else sorted(numbers)) == list(range(300))
    for one in outcomes:
        assert one.task is tasks[one.number]
        assert one.worker in {0, 1}
        _, status, text = odd.get(one.number, (None, "success", ""))
        assert (one.status, one.ok) == (status, status == "success")
        assert one.value == (one.number if one.ok else None)
        assert text in one.error
        assert one.ok == (one.error == "")
    stats = dispatcher.get_stats()
    assert (stats["completed"], stats["failed"]) == (295, 5)


def test_the_outcome_of_a_late_task_has_its_limit_and_duration(workers):
    tasks = [("sleep", 60), ("hang_in_c",)]
    outcomes = list(Dispatcher(workers.Worker, [0, 1]).imap(tasks, task_timeout=0.4))
    assert sorted(one.number for one in outcomes) == [0, 1]
    for one in outcomes:
        assert (one.status, one.error) == ("timeout", "the task exceeded its limit of 0.4 s.")
        assert one.seconds >= 0.4


def test_a_scheduler_sends_a_worker_the_signal_of_its_time_limit(workers):
    outcomes = list(Dispatcher(workers.Worker, [0]).imap([("warned",)], task_timeout=60))
    assert [one.status for one in outcomes] == ["success"]


def test_a_late_task_that_holds_the_interpreter_has_its_limit_as_duration(workers):
    tasks = [("sleep", 0), ("sleep", 0), ("wait_in_c", 1), ("sleep", 0)] * 3
    outcomes = list(Dispatcher(workers.Worker, [0]).imap(tasks, task_timeout=0.3))
    late = [outcome for outcome in outcomes if outcome.status == "timeout"]
    assert len(late) == 3
    assert all(outcome.seconds >= 0.3 for outcome in late)


@pytest.mark.parametrize(
    "stop", mostly_slow(["shutdown", "terminate", "generator", "setup"], "terminate", "generator")
)
def test_tasks_that_were_read_have_an_outcome_at_each_end(workers, stop):
    """After a stop, an error of the generator, or the failure of all workers."""
    taken, outcomes = [], []
    dispatcher = Dispatcher(
        workers.DiesWhenSetUp if stop == "setup" else workers.Worker, [0], queue_size=20
    )

    def generate():
        for number in range(10_000):
            if stop == "generator" and number == 50:
                raise OSError("the disk is gone")
            taken.append(number)
            yield number

    error = {"terminate": RuntimeError, "setup": RuntimeError, "generator": OSError}.get(stop)
    with pytest.raises(error) if error else contextlib.nullcontext():
        for outcome in dispatcher.imap(generate()):
            outcomes.append(outcome)
            if outcome.number == 30 and stop in {"shutdown", "terminate"}:
                getattr(dispatcher, stop)()
    assert sorted(one.number for one in outcomes) == taken
    assert 0 < len(taken) < 10_000
    expected = {"terminate": {"success", "died"}, "setup": {"died"}}.get(stop, {"success"})
    assert {one.status for one in outcomes} == expected


def test_a_timeout_without_its_callback_is_an_error(workers, record):
    callbacks = record.callbacks | {"on_timeout": None}
    Dispatcher(workers.Worker, [0]).run([1, ("sleep", 60), 2], **callbacks, task_timeout=0.2)
    record.assert_each_answered_once(3)
    assert record.errors == {1: "the task exceeded its limit of 0.2 s."}


@pytest.mark.parametrize("number", [20_000, slow(200_000)])
def test_memory_does_not_grow_with_the_number_of_tasks(workers, number):
    import resource

    count = 0

    def deliver(*_):
        nonlocal count
        count += 1

    dispatcher = Dispatcher(workers.Worker, [0, 1])
    dispatcher.run(iter(range(4_000)), deliver)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    dispatcher.run(iter(range(number)), deliver)
    assert count == 4_000 + number
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 10_000  # kilobytes


# --- large data


@pytest.mark.parametrize("size", mostly_slow([65_000, 1 << 20, 20 << 20], 1 << 20))
def test_large_results_and_tasks_arrive_complete(workers, record, size):
    tasks = [("big", size, n % 251) for n in range(8)] + [
        ("length", b"x" * (size + n)) for n in range(8)
    ]
    run(workers, record, tasks)
    record.assert_each_answered_once(16)
    for number in range(8):
        assert record.successes[number] == bytes([number]) * size
        assert record.successes[8 + number] == size + number


def test_arrays_are_writable_copies(workers, record):
    run(workers, record, range(200), gpu_ids=[0], worker="Reuses")
    record.assert_each_answered_once(200)
    for number, result in record.successes.items():
        assert result["array"].shape == (50_000,)
        assert (result["array"] == number).all()
        result["array"][0] = 1


@pytest.mark.slow
def test_arrays_as_tasks(workers, record):
    import numpy as np

    run(workers, record, [np.full(20_000, number) for number in range(50)], worker="Reuses")
    record.assert_each_answered_once(50)
    assert all(one["array"][0] == 20_000 * n for n, one in record.successes.items())


@pytest.mark.slow
def test_many_large_results_reach_a_slow_consumer(workers):
    seen = []

    def deliver(task_id, result, _):
        time.sleep(0.002)
        seen.append((task_id, len(result), result[-1]))

    tasks = [("big", 3_000_000, n % 251) for n in range(60)]
    Dispatcher(workers.Worker, [0, 1]).run(tasks, deliver)
    assert sorted(seen) == [(n, 3_000_000, n % 251) for n in range(60)]


def test_a_kill_leaves_nothing_in_shared_memory(workers, record):
    tasks = [("big", 1 << 20, 1)] * 20 + [("kill",)] + [("big", 1 << 20, 2)] * 20
    run(workers, record, tasks, gpu_ids=[0])
    record.assert_each_answered_once(41)
    # The memory has no name in /dev/shm: it exists while a process has it open or mapped.
    assert "virnucpro-shared" not in Path("/proc/self/maps").read_text()
    assert not [one for one in open_files() if "virnucpro-shared" in one]


# --- tasks that fail


def test_failed_tasks_have_their_tracebacks_and_affect_no_other(workers, record):
    failing = [
        (("raise_", ValueError("no such luck")), "ValueError: no such luck"),
        (("raise_", TimeoutError("mine")), "TimeoutError: mine"),
        (("raise_", KeyboardInterrupt()), "KeyboardInterrupt"),
        (("exit", 3), "SystemExit: 3"),
        (("lambda_",), "Can't"),
        (("pickles_as_error",), "no pickle for you"),
        (("only_here",), "ImportError: not here"),
        (lambda: None, "Can't"),
        (workers.OnlyInParent(), "not there"),
    ]
    tasks = [one for task, _ in failing for one in (*range(40), task)]
    run(workers, record, tasks, gpu_ids=[0], task_timeout=30)
    record.assert_each_answered_once(len(tasks))
    assert sorted(record.errors) == list(range(40, len(tasks), 41))
    for (_, error), (_, text) in zip(sorted(record.errors.items()), failing, strict=True):
        assert text in error.replace("cannot", "Can't")  # the wording of 3.13
    assert record.faults == []


def test_a_task_that_cannot_be_resent_is_answered_and_its_worker_continues(workers, record):
    run(workers, record, [1, workers.KillsAndIsPickledOnce(), *range(100)], gpu_ids=[0])
    record.assert_each_answered_once(102)
    assert list(record.errors) == [1]
    assert "no second time" in record.errors[1]


DEATHS = {
    "SIGKILL": (("kill",), "was killed by SIGKILL"),
    "SIGTERM": (("kill", signal.SIGABRT), "was killed by SIGABRT"),
    "segfault": (("segfault",), "was killed by SIGSEGV"),
    "exit": (("hard_exit", 5), "exited with code 5"),
    "exit 0": (("hard_exit", 0), "exited with code 0"),
    "pickling": (("evil_pickle",), "was killed by SIGKILL"),
    "fork": (("forks",), "was killed by SIGKILL"),
}


@pytest.mark.parametrize(("task", "text"), table(DEATHS, "SIGKILL", "fork"))
def test_a_task_that_kills_is_reported_and_all_others_are_done(workers, record, task, text):
    run(workers, record, [*range(300), task, *range(300)])
    record.assert_each_answered_once(601)
    assert list(record.errors) == [300]
    assert text in record.errors[300]
    assert "attempt 2" in record.errors[300]
    assert [(task_id, attempt) for task_id, attempt, *_ in record.retries] == [(300, 1)]
    assert [type(one) for one in record.faults] == [WorkerDied] * 2
    assert {one.task_id for one in record.faults} == {300}


def test_a_task_that_breaks_its_worker_after_its_return_is_found(workers, record):
    """The worker cannot send the result."""
    run(workers, record, [*range(300), ("close_all",), *range(300)])
    record.assert_each_answered_once(601)
    assert list(record.errors) == [300]
    assert "exited with code 1" in record.errors[300]
    assert [(task_id, attempt) for task_id, attempt, *_ in record.retries] == [(300, 1)]
    assert [one.task_id for one in record.faults] == [300, 300]
    assert record.setup_failures == []


def test_a_task_that_returns_in_two_processes_has_one_answer(workers, record):
    tasks = [*range(50), ("forks_and_returns_twice",), ("big", 1 << 20, 1), *range(50)]
    run(workers, record, tasks, gpu_ids=[0])
    record.assert_each_answered_once(102)
    assert record.errors == {}
    assert isinstance(record.successes[50], int)
    assert record.faults == []


def test_a_worker_that_answers_twice_is_replaced(workers, record, tmp_path):
    """Its copy writes into the same pipe, so the content of the pipe is undefined."""
    note = tmp_path / "copy"
    tasks = [("copies_itself", str(note)), *range(10)]
    run(workers, record, tasks)
    for copy in note.read_text().split() if note.exists() else []:
        with contextlib.suppress(ProcessLookupError):
            os.kill(int(copy), signal.SIGKILL)
    record.assert_each_answered_once(11)
    for error in record.errors.values():
        assert "invalid message" in error or "invalid data" in error


def test_many_poisoned_tasks(workers, record):
    tasks = [("kill",) if n % 10 == 3 else n for n in range(20)]
    run(workers, record, tasks, gpu_ids=[0], options={"max_attempts": 1})
    assert record.retries == []
    record.assert_each_answered_once(20)
    assert sorted(record.errors) == [3, 13]


def test_a_worker_killed_while_idle_is_replaced(workers, record):
    pids = []

    def generate():
        yield ("whoami",)
        while not pids:
            yield ("sleep", 0.01)
        os.kill(pids[0], signal.SIGKILL)
        time.sleep(0.3)
        yield from range(20)

    def note_pid(task_id, result, _):
        if task_id == 0:
            pids.append(result[2])

    Dispatcher(workers.Worker, [0], queue_size=1).run(
        generate(), **record.callbacks_before(note_pid)
    )
    assert [(one.exit, one.task_id) for one in record.faults] == [("SIGKILL", None)]
    assert record.errors == {}
    record.assert_each_answered_once(len(record.answers))


@pytest.mark.slow
def test_a_worker_that_always_dies_idle_fails_permanently(workers, record):
    run(workers, record, [("sleep", 0.03)] * 60, worker="DiesAfterSetup", options={"queue_size": 2})
    assert set(record.answers.values()) == {1}
    assert len(record.answers) == 60


def test_deaths_before_the_first_task_are_not_setup_failures(workers, record):
    with pytest.raises(
        RuntimeError,
        match=r"^All workers failed:\n(?s:.*)died 3 times in a row before its first task",
    ):
        run(workers, record, [1], gpu_ids=[-1], worker="DiesWhenSetUp")
    record.assert_each_answered_once(1)
    assert "was killed by SIGKILL" in record.errors[0]
    assert list(record.workers) == [None]


@pytest.mark.slow
def test_random_kills_lose_and_repeat_no_answer(workers, record):
    rng = random.Random(5)
    pids = set()

    def kill_some(task_id, result, _):
        if isinstance(result, tuple):
            pids.add(result[2])
        if task_id % 400 == 399 and pids:
            pid = rng.choice(sorted(pids))
            pids.clear()
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    tasks = [("whoami",) if n % 20 == 0 else n for n in range(4000)]
    Dispatcher(workers.Worker, [0, 1], max_attempts=10).run(
        tasks, **record.callbacks_before(kill_some)
    )
    record.assert_each_answered_once(4000)
    assert record.errors == {}
    assert len(record.faults) >= 3


# --- time limits


def test_late_python_code_is_interrupted_and_its_worker_is_kept(workers, record):
    """Code that swallows the interruption is late too."""
    began = time.monotonic()
    tasks = [("whoami",), ("sleep", 60), ("swallow",), ("whoami",)]
    run(workers, record, tasks, gpu_ids=[0], task_timeout=0.25)
    assert time.monotonic() - began < 10
    assert record.timeouts == {1: 0.25, 2: 0.25}
    assert record.successes[0] == record.successes[3]
    assert record.faults == []


@pytest.mark.parametrize("task", ["hang_in_c", slow("hang_deaf")])
def test_a_task_that_ignores_its_limit_is_killed(workers, record, task):
    began = time.monotonic()
    run(workers, record, [*range(50), (task,), *range(50)], task_timeout=0.2)
    assert time.monotonic() - began < 20
    record.assert_each_answered_once(101)
    assert record.timeouts == {50: 0.2}
    assert [one.task_id for one in record.faults] == [50]


def test_a_process_that_survives_sigkill_does_not_block_the_run(workers, record, monkeypatch):
    """A SIGKILL that is not sent simulates a process stuck in the kernel."""
    pids = []
    monkeypatch.setattr(supervisor, "KILL_GRACE_S", 0.3)
    with monkeypatch.context() as patch:
        patch.setattr(SpawnProcess, "kill", lambda process: pids.append(process.pid))
        run(workers, record, [1, ("hang_in_c",), 2], gpu_ids=[0], task_timeout=0.2)
    for child in active_children():
        assert child.pid in pids
        child.kill()
        child.join()
    record.assert_each_answered_once(3)
    assert record.timeouts == {1: 0.2}


def test_tasks_close_to_the_limit_are_answered_once(workers, record):
    run(workers, record, [("sleep", 0.02)] * 60, gpu_ids=[0], task_timeout=0.02)
    record.assert_each_answered_once(60)
    assert record.errors == {}


# --- set-up and clean-up


FAILING_SETUPS = {
    "raises": (("raise_", OSError("no weights")), "no weights"),
    "exits": (("exit", 1), "SystemExit"),
    "hard exit": (("hard_exit", 7), "exited with code 7"),
    "killed": (("kill",), "died 3 times in a row before its first task; last failure: worker "),
}


@pytest.mark.parametrize(("how", "text"), table(FAILING_SETUPS, "killed"))
def test_other_workers_do_the_work_of_a_failed_setup(workers, record, how, text):
    def generate():
        while not (record.setup_failures and record.workers):
            yield ("sleep", 0.01)

    run(workers, record, generate(), worker="SetupRaises", bad=[1], how=how)
    record.assert_each_answered_once(len(record.successes))
    assert set(record.workers) == {0}
    [(gpu_id, why)] = record.setup_failures
    assert gpu_id == 1
    assert text in why


@pytest.mark.parametrize(("how", "text"), table(FAILING_SETUPS, "raises"))
def test_a_run_without_a_worker_is_an_error_with_the_reasons(workers, record, how, text):
    taken = []
    tasks = (taken.append(n) for n in range(5))
    with pytest.raises(RuntimeError, match=f"All workers failed during setup(?s:.*){text}"):
        run(workers, record, tasks, worker="SetupRaises", bad=[0, 1], how=how)
    assert len(record.setup_failures) == 2
    assert taken == []
    assert record.exits == 1


def test_a_main_script_without_the_main_guard_is_told_so_at_once(
    workers, record, monkeypatch, tmp_path
):
    path = tmp_path / "unguarded.py"
    path.write_text(
        "from virnucpro.dispatch import BaseWorker, Dispatcher\n"
        "list(Dispatcher(BaseWorker, [0]).map([1]))\n"
    )
    monkeypatch.setattr(sys.modules["__main__"], "__file__", str(path), raising=False)
    with pytest.raises(RuntimeError, match=r"each worker process imports the main script again"):
        run(workers, record, range(3), gpu_ids=[0])
    assert record.faults == []


def test_a_fork_leaves_the_run_to_its_parent(workers):
    """Neither its reading nor its clean-up, as at its exit, touches what both share."""
    outcomes = Dispatcher(workers.Worker, [0]).imap(range(5000))
    next(outcomes)

    def read_on():
        with pytest.raises(UsageError, match="belongs to the process before the fork"):
            list(outcomes)

    assert in_a_fork(read_on) == 0
    assert in_a_fork(outcomes.close) == 0
    assert [outcome.value for outcome in outcomes] == list(range(1, 5000))


@pytest.mark.parametrize("further", [[], [100, 101]])
def test_a_fork_by_the_generator_of_tasks_leaves_the_run_to_its_parent(workers, further):
    copies = []

    def tasks():
        yield from range(2)
        copies.append(os.fork())
        yield from range(2, 60) if copies[0] else further

    try:
        outcomes = list(Dispatcher(workers.Worker, [0, 1]).imap(tasks()))
    except UsageError as error:
        assert not copies[0]
        os._exit("before the fork" not in str(error))
    finally:
        if copies == [0]:
            os._exit(1)
    assert os.waitpid(copies[0], 0)[1] == 0
    assert sorted(outcome.value for outcome in outcomes) == list(range(60))


def test_a_task_may_have_centuries(workers):
    assert list(Dispatcher(workers.Worker, [0]).map([1], task_timeout=1e300)) == [1]


def test_a_log_that_is_a_link_is_refused(workers, tmp_path):
    (tmp_path / "worker-0.log").symlink_to(tmp_path / "thesis")
    (tmp_path / "thesis").write_text("of years")
    with pytest.raises(RuntimeError, match=r"symbolic links.*worker-0\.log"):
        list(Dispatcher(workers.Worker, [0], log_folder=tmp_path).map([1]))
    assert (tmp_path / "thesis").read_text() == "of years"


def test_a_log_that_is_a_named_pipe_does_not_block(workers, tmp_path):
    os.mkfifo(tmp_path / "worker-0.log")
    with pytest.raises(RuntimeError, match=r"No such device or address.*worker-0\.log"):
        list(Dispatcher(workers.Worker, [0], log_folder=tmp_path).map([1]))


def test_a_dispatcher_without_devices_says_what_to_give(workers):
    for arguments in ({}, {"gpu_ids": []}):
        with pytest.raises(ValueError, match="give at least one device, such as devices='cpu:2'"):
            Dispatcher(workers.Worker, **arguments)


def test_a_worker_killed_in_its_setup_is_restarted(workers, record, tmp_path):
    times = {0: 2, 1: 1}
    tasks = iter(lambda: ("sleep", 0.01) if len(record.workers) < 2 else None, None)
    dispatcher = run(
        workers, record, tasks, worker="KilledInSetup", folder=str(tmp_path), times=times
    )
    record.assert_each_answered_once(len(record.successes))
    assert record.setup_failures == []
    deaths = [(fault.worker_id, fault.exit, fault.task_id) for fault in record.faults]
    assert sorted(deaths) == sorted(
        (worker_id, "SIGKILL", None) for worker_id, n in times.items() for _ in range(n)
    )
    assert "The worker was in its setup." in record.faults[0].how
    assert dispatcher.get_stats()["deaths"] == len(deaths)


@pytest.mark.slow
def test_a_hung_setup_is_ended(workers, record):
    run(
        workers,
        record,
        range(20),
        worker="SetupRaises",
        bad=[1],
        how=("sleep", 60),
        options={"setup_timeout": 5.0},
    )
    assert len(record.successes) == 20
    assert "did not finish its setup within 5 s" in record.setup_failures[0][1]


def test_a_hung_setup_keeps_no_task_from_the_others(workers, record):
    came = {}
    callbacks = record.callbacks_before(
        lambda task_id, *_: came.update({task_id: time.monotonic()})
    )
    began = time.monotonic()
    Dispatcher(workers.SetupRaises, [0, 1], cleanup_timeout=1.0).run(
        range(6), **callbacks, bad=[1], how=("sleep", 60)
    )
    record.assert_each_answered_once(6)
    assert set(record.workers) == {0}
    assert max(came.values()) - began < 10
    assert time.monotonic() - began < 20
    [(gpu_id, why)] = record.setup_failures
    assert gpu_id == 1
    assert "after the last task was done, it did not finish its setup within 1 s" in why


def test_a_local_worker_class_is_refused(record):
    with pytest.raises(UsageError, match="cannot be sent to a worker process"):
        Dispatcher(_local_class(), [0]).run([1], **record.callbacks)
    assert record.exits == 1


def _local_class():
    class Local(BaseWorker):
        def setup(self, gpu_id, seed, **keywords): ...

        def process(self, data): ...

    return Local


FAILING_CLEANUPS = {
    "raises": (("raise_", OSError("no goodbye")), "no goodbye"),
    "exits": (("exit", 2), "SystemExit"),
    "killed": (("kill",), "was killed by SIGKILL"),
    "hard exit": (("hard_exit", 4), "exited with code 4"),
    "hangs": (("sleep", 60), "its process did not exit within 0.5 s"),
    "leaves a thread": (("leave_thread",), "its process did not exit within 0.5 s"),
}


@pytest.mark.parametrize(("how", "text"), table(FAILING_CLEANUPS, "raises", "leaves a thread"))
def test_a_failed_cleanup_is_reported_after_all_answers(workers, record, how, text):
    run(
        workers,
        record,
        range(30),
        worker="CleanupFails",
        gpu_ids=[0],
        how=how,
        options={"cleanup_timeout": 0.5},
    )
    record.assert_each_answered_once(30)
    [fault] = record.faults
    assert isinstance(fault, CleanupFailed)
    assert text in fault.error


def test_workers_clean_up_before_on_exit(workers, tmp_path):
    seen = []
    Dispatcher(workers.CleanupTells, [0, 1]).run(
        range(4),
        lambda *_: None,
        on_exit=lambda: seen.extend(sorted(p.name for p in tmp_path.iterdir())),
        folder=str(tmp_path),
    )
    assert seen == ["0", "1"]


# --- what breaks a run off


def test_an_error_of_the_generator_is_raised_after_all_answers(workers, record):
    cause = OSError("the disk is gone")

    def generate():
        yield from range(50)
        raise ValueError("a bad line") from cause

    with pytest.raises(ValueError, match="a bad line") as caught:
        run(workers, record, generate(), gpu_ids=[0])
    assert caught.value.__cause__ is cause
    record.assert_each_answered_once(50)


@pytest.mark.parametrize(
    ("name", "error"),
    [
        ("on_success", ZeroDivisionError),
        slow("on_success", SystemExit),
        slow("on_error", ZeroDivisionError),
        ("on_exit", ZeroDivisionError),
    ],
)
def test_an_error_of_a_callback_ends_the_run(workers, record, name, error):
    def fail(*_):
        raise error(name)

    began = time.monotonic()
    tasks = [0, ("raise_", ValueError()), *(("sleep", 0.5) for _ in range(100))]
    with pytest.raises(error, match=name):
        Dispatcher(workers.Worker, [0]).run(
            tasks[: 2 if name == "on_exit" else None], **(record.callbacks | {name: fail})
        )
    assert time.monotonic() - began < 15


def test_workers_clean_up_after_a_failed_run(workers, tmp_path):
    def fail(*_):
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        Dispatcher(workers.CleanupTells, [0]).run(
            [0, *[("sleep", 60)] * 3], fail, folder=str(tmp_path)
        )
    assert [path.name for path in tmp_path.iterdir()] == ["0"]


def test_shutdown_answers_taken_tasks_and_takes_no_more(workers, record):
    dispatcher = Dispatcher(workers.Worker, [0], queue_size=20)
    taken = []

    def generate():
        number = 0
        while True:
            taken.append(number)
            yield number
            number += 1

    def shut_down(task_id, *_):
        if task_id == 500:
            dispatcher.shutdown()

    dispatcher.run(generate(), **record.callbacks_before(shut_down))
    record.assert_each_answered_once(len(taken))
    dispatcher.shutdown()  # nothing runs: nothing happens


def test_shutdown_from_another_thread_ends_a_waiting_run(workers, record):
    dispatcher = Dispatcher(workers.Worker, [0])
    threading.Timer(0.5, dispatcher.shutdown).start()
    dispatcher.run(iter(lambda: ("sleep", 0.2), None), **record.callbacks)
    record.assert_each_answered_once(len(record.answers))


# --- where it is used


def test_a_dispatcher_runs_twice_in_a_thread_and_within_a_worker(workers, record):
    dispatcher = Dispatcher(workers.Worker, [0])
    results = []
    thread = threading.Thread(
        target=dispatcher.run,
        args=([("nested", 5), 1], lambda _, result, __: results.append(result)),
    )
    thread.start()
    thread.join()
    assert sorted(results, key=repr) == [1, [0, 1, 2, 3, 4]]
    dispatcher.run(range(3), **record.callbacks)
    record.assert_each_answered_once(3)


def test_a_run_within_a_callback_of_the_same_dispatcher_is_refused(workers):
    dispatcher = Dispatcher(workers.Worker, [0])
    with pytest.raises(RuntimeError, match="use a second dispatcher"):
        dispatcher.run([1], lambda *_: dispatcher.run([2], print))


def test_stats_during_a_run(workers):
    dispatcher = Dispatcher(workers.Worker, [0, 1], queue_size=10)
    seen = []
    dispatcher.run(range(200), lambda *_: seen.append(dispatcher.get_stats()))
    assert [one["completed"] for one in seen] == list(range(1, 201))
    assert all(one["pending"] + one["running"] <= 10 for one in seen)


def test_output_of_workers_can_be_discarded(workers, record, capfd):
    printing = {"tasks": [("stdout",)], "gpu_ids": [0]}
    run(workers, record, **printing, options={"suppress_worker_output": True})
    assert capfd.readouterr().out == ""
    run(workers, record, **printing)
    assert capfd.readouterr().out == "printed by a worker\n"


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ((object, [0]), TypeError),
        (("Worker", [0]), TypeError),
        ((BaseWorker, "0,1"), TypeError),
        ((BaseWorker, []), ValueError),
        ((BaseWorker,), ValueError),
        ((BaseWorker, [0], 0), ValueError),
    ],
)
def test_invalid_arguments_are_refused(arguments, error):
    with pytest.raises(error):
        Dispatcher(*arguments)


def test_a_keyword_that_cannot_be_pickled_is_refused_before_a_task_is_taken(workers, record):
    taken = []
    handler = signal.getsignal(signal.SIGINT)
    with pytest.raises(UsageError, match="cannot be sent"):
        run(workers, record, (taken.append(n) for n in range(3)), hook=lambda: None)
    assert taken == []
    assert signal.getsignal(signal.SIGINT) is handler


def test_a_class_of_a_prompt_is_refused(workers, monkeypatch):
    monkeypatch.setattr(workers.Worker, "__module__", "__main__")
    with pytest.raises(UsageError, match="into a module"):
        Dispatcher(workers.Worker, [0]).run([1], print)


# --- what a launcher asks for


def test_no_task_waits_behind_a_long_one(workers, record):
    tasks = [0] * 200 + [("sleep", 1.0)] + [1] * 200
    run(workers, record, tasks)
    record.assert_each_answered_once(401)
    assert list(record.answers)[-1] == 200


def test_workers_get_variables_and_logs(workers, record, tmp_path):
    dispatcher = Dispatcher(
        workers.Worker,
        max_attempts=1,
        devices="cpu:2",
        environment={"VIRNUCPRO_TEST": "told", "CUDA_VISIBLE_DEVICES": "7"},
        log_folder=tmp_path / "logs",
    )
    names = ("VIRNUCPRO_TEST", "CUDA_VISIBLE_DEVICES")
    dispatcher.run([*(("environment", name) for name in names), ("segfault",)], **record.callbacks)
    assert record.successes == {0: "told", 1: ""}
    assert list(record.errors) == [2]
    logs = sorted((tmp_path / "logs").iterdir())
    assert [log.name for log in logs] == ["worker-0.log", "worker-1.log"]
    assert "Segmentation fault" in "".join(log.read_text() for log in logs)


@pytest.mark.parametrize(
    ("worker", "tasks"),
    [
        pytest.param("Worker", [("sleep", 60)], id="work"),
        slow("CleanupFails", [], id="end"),
    ],
)
def test_another_thread_stops_a_run(workers, record, worker, tasks):
    dispatcher = Dispatcher(getattr(workers, worker), [0, 1], cleanup_timeout=None)
    dispatcher.terminate()  # nothing to break off yet
    timer = threading.Timer(0.8, dispatcher.terminate)
    timer.start()
    began = time.monotonic()
    with pytest.raises(RuntimeError, match="stopped by terminate"):
        dispatcher.run(iter(tasks), **record.callbacks, how=("leave_thread",))
    timer.join()
    assert time.monotonic() - began < 10
    assert record.exits == 1


def test_a_worker_that_says_it_is_unusable_is_replaced(workers, record, tmp_path):
    mark = tmp_path / "lost"
    tasks = [*range(50), ("unusable_once", mark), *range(51, 80), ("unusable",), *range(81, 100)]
    run(workers, record, tasks, gpu_ids=[0])
    record.assert_each_answered_once(100)
    assert record.successes[50] not in {None, int(mark.read_text())}
    assert sorted(record.errors) == [80]
    assert "the device is lost for good" in record.errors[80]
    assert [(task, attempt) for task, attempt, *_ in record.retries] == [(50, 1), (80, 1)]
    assert {fault.task_id for fault in record.faults} == {50, 80}

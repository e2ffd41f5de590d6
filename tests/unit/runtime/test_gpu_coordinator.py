"""The coordinator, with real processes."""

import contextlib
import importlib
import os
import queue
import signal
import sys
import threading
import time
from functools import partial
from multiprocessing import process

import pytest
from cases import slow
from programs import in_a_fork, wait_until

from virnucpro.errors import DeviceError, UsageError, WorkerError
from virnucpro.runtime.devices import Device
from virnucpro.runtime.gpu_coordinator import GPUProcessCoordinator
from virnucpro.runtime.isolation import run_isolated
from virnucpro.runtime.status import NO_MAIN_GUARD, WorkerState
from virnucpro.runtime.watchdog import Deadlines

LIMIT = 60
"""Time limit of each wait in seconds, sufficient for any machine."""


@pytest.fixture
def workers(coordinator_workers, monkeypatch):
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    return coordinator_workers


@pytest.fixture
def spawn(workers, tmp_path):
    """Make a coordinator and spawn its workers; they end with the test."""
    with contextlib.ExitStack() as stack:

        def make(world_size, function, *args, **options):
            coordinator = stack.enter_context(
                GPUProcessCoordinator(world_size, tmp_path, **options)
            )
            coordinator.spawn_workers(getattr(workers, function), args)
            return coordinator

        yield make


def take(coordinator, count):
    return [coordinator.results_queue.get(timeout=LIMIT) for _ in range(count)]


def by_rank(reports, key):
    return {report["rank"]: report[key] for report in reports}


# --- before and after spawning


def test_a_new_coordinator_has_no_workers(tmp_path):
    coordinator = GPUProcessCoordinator(3, tmp_path)
    assert coordinator.world_size == 3
    assert coordinator.ctx.get_start_method() == "spawn"
    assert coordinator.output_dir == tmp_path
    assert coordinator.workers == {}
    assert coordinator.statuses == {}
    assert coordinator.results_queue.empty()
    assert coordinator.collect_results() == []
    assert coordinator.wait_for_completion(timeout=0) == {}
    coordinator.terminate_all()
    with pytest.raises(queue.Empty):  # nobody can send anything, so it does not wait
        coordinator.results_queue.get()


def test_workers_get_rank_world_size_and_extra_arguments(spawn):
    """Arguments may be larger than a pipe."""
    extra = "one", {"two": 2}, b"x" * (1 << 22)
    coordinator = spawn(2, "echo", *extra)
    assert coordinator.wait_for_completion(LIMIT) == {0: True, 1: True}
    reports = coordinator.collect_results()
    assert by_rank(reports, "world_size") == {0: 2, 1: 2}
    assert by_rank(reports, "args") == {0: extra, 1: extra}
    assert by_rank(reports, "pid") == {r: p.pid for r, p in coordinator.workers.items()}


def test_events_of_the_context_may_be_arguments(spawn, tmp_path):
    event = GPUProcessCoordinator(1, tmp_path).ctx.Event()
    assert spawn(1, "set_event", event).wait_for_completion(LIMIT) == {0: True}
    assert event.is_set()


def test_spawning_twice_is_refused(spawn, workers):
    coordinator = spawn(1, "echo")
    with pytest.raises(UsageError, match="already"):
        coordinator.spawn_workers(workers.echo, ())


async def coroutine(rank, world_size, results_queue): ...


def generator(rank, world_size, results_queue):
    yield rank


async def both(rank, world_size, results_queue):
    yield rank


@pytest.mark.parametrize("function", [coroutine, generator, both, partial(generator)])
def test_a_function_that_a_call_does_not_run_is_refused(function, tmp_path):
    with GPUProcessCoordinator(1, tmp_path) as coordinator:
        with pytest.raises(UsageError, match=r"(coroutine|generator|both) .*is a generator or cor"):
            coordinator.spawn_workers(function)
        assert coordinator.workers == {}


def test_a_fork_leaves_the_workers_to_its_parent(spawn, tmp_path):
    coordinator = spawn(2, "touch_and_wait", str(tmp_path))
    assert sorted(take(coordinator, 2)) == [0, 1]
    assert in_a_fork(coordinator.terminate_all) == 0
    for call in (coordinator.wait_for_completion, coordinator.wait_for_change):

        def refused(call=call):
            with pytest.raises(UsageError, match="belong to the process before the fork"):
                call()

        assert in_a_fork(refused) == 0
    (tmp_path / "go").touch()
    assert coordinator.wait_for_completion(LIMIT) == {0: True, 1: True}


def test_a_function_that_cannot_be_pickled_is_refused_before_any_start(workers, tmp_path):
    coordinator = GPUProcessCoordinator(2, tmp_path)
    with pytest.raises(UsageError, match="top level"):
        coordinator.spawn_workers(lambda *_: None)
    with pytest.raises(UsageError, match="top level"):
        coordinator.spawn_workers(workers.echo, (threading.Lock(),))
    assert coordinator.workers == {}
    coordinator.spawn_workers(workers.echo)  # a refused call leaves nothing behind
    assert coordinator.wait_for_completion(LIMIT) == {0: True, 1: True}


@pytest.mark.parametrize(
    ("world_size", "error", "message"),
    [
        (0, UsageError, "at least one"),
        (-1, UsageError, "at least one"),
        (3, DeviceError, r"3 workers .* 2 devices .*4,5"),
    ],
)
def test_an_impossible_world_size_is_refused(monkeypatch, tmp_path, world_size, error, message):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,5")
    with pytest.raises(error, match=message):
        GPUProcessCoordinator(world_size, tmp_path)


# --- devices and environment


@pytest.mark.parametrize(
    ("inherited", "devices", "masks"),
    [
        slow(None, None, ["0", "1"]),
        slow("4,5", None, ["4", "5"]),
        (" 4 , 5,6", None, ["4", "5"]),
        slow("GPU-aa,MIG-bb", None, ["GPU-aa", "MIG-bb"]),
        slow("", None, ["", ""]),
        slow("4,5,6", [2, 0], ["6", "4"]),
        slow(None, [3, "GPU-cc"], ["3", "GPU-cc"]),
        (None, [Device("cpu"), Device("cuda", "7")], ["", "7"]),
        slow("4,5", ["cpu", "cpu"], ["", ""]),
    ],
)
def test_a_worker_sees_only_its_device(spawn, monkeypatch, inherited, devices, masks):
    if inherited is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", inherited)
    coordinator = spawn(2, "echo", devices=devices)
    assert coordinator.wait_for_completion(LIMIT) == {0: True, 1: True}
    assert by_rank(coordinator.collect_results(), "mask") == dict(enumerate(masks))
    assert os.environ.get("CUDA_VISIBLE_DEVICES") == inherited


def test_the_mask_is_set_before_the_worker_function_is_imported(workers, monkeypatch, tmp_path):
    (tmp_path / "asks_at_import.py").write_text(
        "import os\n"
        "SEEN = os.environ.get('CUDA_VISIBLE_DEVICES'), os.environ.get('OMP_NUM_THREADS')\n"
        "def tell(rank, world_size, results_queue):\n"
        "    results_queue.put(SEEN)\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "8,9")
    module = importlib.import_module("asks_at_import")
    with GPUProcessCoordinator(2, tmp_path, threads=3) as coordinator:
        coordinator.spawn_workers(module.tell)
        assert sorted(take(coordinator, 2)) == [("8", "3"), ("9", "3")]


def test_a_workers_exit_handlers_run_and_its_threads_are_joined(spawn, tmp_path):
    coordinator = spawn(1, "leave_a_note", str(tmp_path))
    assert coordinator.wait_for_completion(20) == {0: True}
    assert (tmp_path / "handler").exists()
    assert (tmp_path / "thread").exists()
    assert (tmp_path / "run" / "logs" / "rank-0000.log").read_text() == "half a line"


def test_threads_wait_asleep_and_their_number_is_set_only_on_request(spawn, monkeypatch):
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.delenv("OMP_WAIT_POLICY", raising=False)
    monkeypatch.setenv("MKL_NUM_THREADS", "7")
    [report] = take(spawn(1, "echo"), 1)
    assert (report["threads"], report["wait"]) == ((None, "7"), "PASSIVE")
    monkeypatch.setenv("OMP_WAIT_POLICY", "ACTIVE")
    [report] = take(spawn(1, "echo", threads=2), 1)
    assert (report["threads"], report["wait"]) == (("2", "2"), "ACTIVE")


def test_output_of_a_worker_is_in_its_log(spawn, tmp_path):
    coordinator = spawn(2, "write_output")
    assert coordinator.wait_for_completion(LIMIT) == {0: True, 1: True}
    for rank in (0, 1):
        lines = (tmp_path / "run" / "logs" / f"rank-{rank:04d}.log").read_text().splitlines()
        assert lines == ["out by print", "err by print", "out from below", "err from below"]


def test_without_logs_output_goes_to_the_parents_streams(spawn, tmp_path, capfd):
    spawn(1, "write_output", logs=False).wait_for_completion(LIMIT)
    assert capfd.readouterr() == (
        "out by print\nout from below\n",
        "err by print\nerr from below\n",
    )
    assert not (tmp_path / "run" / "logs").exists()


def test_a_log_that_cannot_be_written_is_a_failure_with_its_name(spawn, tmp_path):
    (tmp_path / "run" / "logs" / "rank-0001.log").mkdir(parents=True)
    coordinator = spawn(2, "echo")
    assert coordinator.wait_for_completion(LIMIT) == {0: True, 1: False}
    assert coordinator.statuses[1].kind == "IsADirectoryError"
    assert "rank-0001.log" in coordinator.statuses[1].reason


def test_programs_started_by_a_worker_do_not_inherit_its_pipe(spawn):
    [(descriptor, listing)] = take(spawn(1, "descriptors_of_a_subprocess"), 1)
    assert f"'{descriptor}'" not in listing


# --- how workers end


def test_one_of_three_fails(spawn, tmp_path):
    coordinator = spawn(3, "succeed_or_fail", 1)
    assert coordinator.wait_for_completion(LIMIT) == {0: True, 1: False, 2: True}
    for rank in (0, 2):
        status = coordinator.statuses[rank]
        assert (status.state, status.exit, status.reason) == (WorkerState.SUCCEEDED, 0, "")
        assert status.started_at <= status.last_heartbeat <= status.ended_at
    status = coordinator.statuses[1]
    assert (status.state, status.exit, status.kind) == (WorkerState.FAILED, 1, "ValueError")
    assert status.reason == "ValueError: rank 1 was told to fail"
    assert "in succeed_or_fail" in status.traceback
    assert "ValueError" in (tmp_path / "run" / "logs" / "rank-0001.log").read_text()


@pytest.mark.parametrize(
    ("function", "args", "exit_kind", "reason"),
    [
        ("kill_self", (signal.SIGKILL,), ("SIGKILL", ""), "killed by SIGKILL"),
        slow("kill_self", (signal.SIGTERM,), ("SIGTERM", ""), "killed by SIGTERM"),
        slow("kill_self", (signal.SIGABRT,), ("SIGABRT", ""), "killed by SIGABRT"),
        ("segfault", (), ("SIGSEGV", ""), "killed by SIGSEGV"),
        slow("hard_exit", (3,), (3, ""), "exited with code 3 before the worker function returned"),
        ("hard_exit", (0,), (0, ""), "exited with code 0 before the worker function returned"),
        slow("exit_with", (3,), (3, "SystemExit"), "SystemExit: 3"),
        ("exit_with", ("no more",), (1, "SystemExit"), "SystemExit: no more"),
        ("raise_this", (KeyboardInterrupt,), (1, "KeyboardInterrupt"), "KeyboardInterrupt"),
        slow("raise_this", (MemoryError,), (1, "MemoryError"), "MemoryError"),
        ("raise_unfriendly", (), (1, "UnfriendlyError"), "UnfriendlyError: "),
        ("crash_while_exiting", (), ("SIGABRT", ""), "after the worker function returned"),
    ],
)
def test_each_failure_has_its_state_and_reason(spawn, tmp_path, function, args, exit_kind, reason):
    coordinator = spawn(1, function, *args)
    assert coordinator.wait_for_completion(LIMIT) == {0: False}
    status = coordinator.statuses[0]
    assert status.state is WorkerState.FAILED
    assert (status.exit, status.kind) == exit_kind
    assert reason in status.reason
    if function == "segfault":
        log = (tmp_path / "run" / "logs" / "rank-0000.log").read_text()
        assert "Segmentation fault" in log
        assert "in segfault" in log


@pytest.mark.parametrize("code", [slow(None), 0])
def test_a_clean_exit_is_a_success(spawn, code):
    assert spawn(1, "exit_with", code).wait_for_completion(LIMIT) == {0: True}


def test_an_exception_at_import_is_reported(workers, monkeypatch, tmp_path):
    (tmp_path / "breaks_in_workers.py").write_text(
        "from multiprocessing import parent_process\n"
        "if parent_process() is not None:\n"
        "    raise RuntimeError('not in a worker')\n"
        "def work(rank, world_size, results_queue): ...\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    module = importlib.import_module("breaks_in_workers")
    with GPUProcessCoordinator(2, tmp_path) as coordinator:
        coordinator.spawn_workers(module.work)
        assert coordinator.wait_for_completion(LIMIT) == {0: False, 1: False}
        assert coordinator.statuses[0].reason == "RuntimeError: not in a worker"
        assert "breaks_in_workers.py" in coordinator.statuses[0].traceback


@pytest.mark.parametrize(
    ("script", "kind", "permanent"),
    [
        ("raise RuntimeError('no guard')\n", "", False),
        (
            "from virnucpro.runtime.process import leave_unguarded_import as leave\nleave()\n",
            NO_MAIN_GUARD,
            True,
        ),
        slow(
            "import os\n"
            "from virnucpro.runtime.gpu_coordinator import GPUProcessCoordinator\n"
            "GPUProcessCoordinator(1, os.devnull, logs=False).spawn_workers(print)\n",
            NO_MAIN_GUARD,
            True,
        ),
    ],
    ids=["fails", "calls a function", "spawns workers"],
)
def test_a_main_script_that_fails_in_workers_is_reported(
    workers, monkeypatch, tmp_path, script, kind, permanent
):
    path = tmp_path / "unguarded.py"
    path.write_text(script)
    monkeypatch.setattr(sys.modules["__main__"], "__file__", str(path), raising=False)
    with GPUProcessCoordinator(1, tmp_path) as coordinator:
        coordinator.spawn_workers(workers.echo)
        assert coordinator.wait_for_completion(LIMIT) == {0: False}
        status = coordinator.statuses[0]
    assert (status.kind, status.permanent) == (kind, permanent)
    if permanent:
        with pytest.raises(UsageError, match="each worker process imports the main script again"):
            run_isolated(print)
    else:
        assert "before the worker function was called" in status.reason
        assert "__main__" in status.reason


def test_a_death_is_known_within_a_second_and_does_not_affect_other_workers(spawn, tmp_path):
    coordinator = spawn(3, "touch_and_wait", str(tmp_path))
    take(coordinator, 3)
    killed = time.monotonic()
    coordinator.workers[1].kill()
    wait_until(lambda: coordinator.statuses[1].ended)
    assert time.monotonic() - killed < 1
    assert [coordinator.workers[rank].is_alive() for rank in range(3)] == [True, False, True]
    (tmp_path / "go").touch()
    assert coordinator.wait_for_completion(LIMIT) == {0: True, 1: False, 2: True}


def test_a_death_is_known_while_a_fork_of_the_worker_lives(spawn):
    coordinator = spawn(1, "outlived_by_a_fork")
    [grandchild] = take(coordinator, 1)
    try:
        assert coordinator.wait_for_completion(LIMIT) == {0: False}
        assert coordinator.statuses[0].exit == "SIGKILL"
    finally:
        os.kill(grandchild, signal.SIGKILL)


@pytest.mark.parametrize(("function", "succeeds"), [slow("echo", True), ("hard_exit", False)])
def test_ends_are_known_without_exit_statuses(spawn, function, succeeds):
    before = signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    try:
        coordinator = spawn(1, function, 0)
        assert coordinator.wait_for_completion(LIMIT) == {0: succeeds}
    finally:
        signal.signal(signal.SIGCHLD, before)
    assert coordinator.statuses[0].exit is None
    process._children.discard(coordinator.workers[0])  # multiprocessing will never know


# --- waiting and stopping


def test_a_time_limit_passes_without_processor_time_while_workers_run(spawn):
    coordinator = spawn(3, "hang")
    pids = [process.pid for process in coordinator.workers.values()]
    assert sorted(take(coordinator, 3)) == sorted(pids)
    assert [status.pid for status in coordinator.statuses.values()] == pids
    started, used = time.monotonic(), time.process_time()
    assert coordinator.wait_for_completion(timeout=0.4) == {0: False, 1: False, 2: False}
    assert 0.4 <= time.monotonic() - started < 1.2  # one limit for all, not one after another
    assert time.process_time() - used < 0.1
    assert all(process.is_alive() for process in coordinator.workers.values())
    assert all(status.state is WorkerState.RUNNING for status in coordinator.statuses.values())


def terminated(spawn, function):
    """Return the exits of three workers that a coordinator ends while they run."""
    coordinator = spawn(3, function)
    take(coordinator, 3)
    coordinator.terminate_all()
    assert not any(process.is_alive() for process in coordinator.workers.values())
    assert all(status.state is WorkerState.STOPPED for status in coordinator.statuses.values())
    assert coordinator.statuses[0].reason == "stopped with the run"
    assert coordinator.wait_for_completion() == {0: False, 1: False, 2: False}
    coordinator.terminate_all()
    return [status.exit for status in coordinator.statuses.values()]


def test_terminate_all_ends_hung_workers_and_kills_those_that_ignore_sigterm(spawn, monkeypatch):
    monkeypatch.setattr("virnucpro.runtime.supervisor.TERMINATE_GRACE_S", 0.2)
    assert terminated(spawn, "hang_in_each_way") == ["SIGTERM", "SIGTERM", "SIGKILL"]


@pytest.mark.slow
@pytest.mark.parametrize("function", ["hang_until_asked", "leave_thread"])
def test_terminate_all_ends_workers_that_clean_up_or_left_a_thread(spawn, function):
    assert "SIGKILL" not in terminated(spawn, function)


def test_terminate_all_keeps_the_status_of_ended_workers(spawn, tmp_path):
    coordinator = spawn(2, "touch_and_wait", str(tmp_path), (1,))
    wait_until(lambda: coordinator.statuses[1].ended)
    coordinator.terminate_all()
    states = {rank: status.state for rank, status in coordinator.statuses.items()}
    assert states == {0: WorkerState.STOPPED, 1: WorkerState.FAILED}


def test_the_block_ends_all_workers_when_it_raises(workers, tmp_path):
    coordinator = GPUProcessCoordinator(2, tmp_path)

    def fail_within_the_block():
        with coordinator:
            coordinator.spawn_workers(workers.hang)
            raise KeyError

    with pytest.raises(KeyError):
        fail_within_the_block()
    assert not any(process.is_alive() for process in coordinator.workers.values())


def test_ctrl_c_does_not_reach_workers_even_while_they_start(spawn, tmp_path):
    coordinator = spawn(2, "touch_and_wait", str(tmp_path))
    for worker in coordinator.workers.values():
        os.kill(worker.pid, signal.SIGINT)
    take(coordinator, 2)
    for worker in coordinator.workers.values():
        os.kill(worker.pid, signal.SIGINT)
    (tmp_path / "go").touch()
    assert coordinator.wait_for_completion(LIMIT) == {0: True, 1: True}


# --- reports


@pytest.mark.parametrize(("count", "size"), [(2_000, 10), slow(5, 3 << 20)])
def test_every_report_arrives_even_if_read_after_the_end(spawn, count, size):
    coordinator = spawn(2, "many_reports", count, size)
    assert coordinator.wait_for_completion(LIMIT) == {0: True, 1: True}
    assert coordinator.results_queue.qsize() == 2 * count
    reports = coordinator.collect_results()
    for rank in (0, 1):
        mine = [report for report in reports if report[0] == rank]
        assert [number for _, number, _ in mine] == list(range(count))
        assert all(payload == bytes([rank]) * size for _, _, payload in mine)
    assert coordinator.collect_results() == []
    with pytest.raises(queue.Empty):
        coordinator.results_queue.get_nowait()
    with pytest.raises(queue.Empty):  # without a limit: it knows that no more can come
        coordinator.results_queue.get()


def test_all_threads_of_a_worker_can_report(spawn):
    coordinator = spawn(1, "put_from_threads", 20, 100_000)
    assert coordinator.wait_for_completion(LIMIT) == {0: True}
    reports = sorted(coordinator.collect_results())
    assert reports == [(t, n, bytes([t]) * 100_000) for t in range(4) for n in range(20)]


@pytest.mark.parametrize("size", [slow(10), 10 << 20])
def test_a_worker_killed_while_it_sends_does_not_affect_others(spawn, tmp_path, size):
    coordinator = spawn(1, "put_for_ever", size)
    other = spawn(1, "touch_and_wait", str(tmp_path))
    coordinator.results_queue.get(timeout=LIMIT)
    os.kill(coordinator.workers[0].pid, signal.SIGKILL)
    assert coordinator.wait_for_completion(LIMIT) == {0: False}
    assert coordinator.statuses[0].exit == "SIGKILL"
    assert {len(report) for report in coordinator.collect_results()} <= {size}
    (tmp_path / "go").touch()
    assert other.wait_for_completion(LIMIT) == {0: True}


def test_an_incomplete_report_is_a_failure(spawn):
    coordinator = spawn(1, "half_a_report", 10 << 20, signal.SIGKILL)
    assert coordinator.wait_for_completion(LIMIT) == {0: False}
    assert coordinator.collect_results() == ["whole"]
    assert "killed by SIGKILL" in coordinator.statuses[0].reason
    assert "last message is incomplete: 5,242,8" in coordinator.statuses[0].reason


def test_a_worker_stopped_within_a_report_does_not_block_the_parent(spawn, workers, tmp_path):
    coordinator = spawn(1, "half_a_report", 10 << 20, signal.SIGSTOP)
    assert take(coordinator, 1) == ["whole"]
    assert coordinator.wait_for_completion(0.1) == {0: False}
    assert coordinator.workers[0].is_alive()
    coordinator.workers[0].kill()
    assert coordinator.wait_for_completion(LIMIT) == {0: False}


def test_a_message_interrupted_by_a_signal_handler_is_never_misread(spawn):
    coordinator = spawn(1, "interrupted_report")
    assert coordinator.wait_for_completion(LIMIT) == {0: False}
    assert {len(report) for report in coordinator.collect_results()} <= {1 << 22}
    assert coordinator.statuses[0].exit == 1


def test_a_worker_that_writes_into_its_pipe_is_ended(spawn):
    coordinator = spawn(1, "foreign_bytes")
    assert coordinator.wait_for_completion(LIMIT) == {0: False}
    assert "invalid data" in coordinator.statuses[0].reason


def test_a_report_that_cannot_be_pickled_is_an_error_in_the_worker(spawn):
    coordinator = spawn(1, "put_unpicklable")
    assert coordinator.wait_for_completion(LIMIT) == {0: True}
    [error] = coordinator.collect_results()
    assert "put_unpicklable.<locals>.<lambda>" in error


def test_a_report_that_cannot_be_unpickled_is_reported_and_affects_no_other(spawn):
    coordinator = spawn(1, "put_unreadable")
    assert coordinator.wait_for_completion(LIMIT) == {0: True}
    with pytest.raises(WorkerError, match=r"result of worker 0 .* ImportError: not here"):
        coordinator.collect_results()
    assert coordinator.collect_results() == ["before", "after"]


def test_progress_is_in_the_statuses_including_the_last_report(spawn):
    coordinator = spawn(1, "count_up", 5_000)
    assert coordinator.wait_for_completion(LIMIT) == {0: True}
    assert (coordinator.statuses[0].done, coordinator.statuses[0].total) == (4_999, 5_001)


def answer(coordinator, rank, asked, payload):
    """Answer a question of a worker when it has come."""
    wait_until(lambda: coordinator.statuses[rank].asked == asked)
    coordinator.answer_worker(rank, payload)


def test_each_question_gets_its_answer_but_not_a_too_large_one(spawn):
    coordinator = spawn(2, "ask_for_numbers", devices=["cpu"] * 2)
    with pytest.raises(ValueError, match=r"65,5.. bytes is too large for a worker"):
        coordinator.answer_worker(0, "x" * (1 << 16))
    for asked, payload in enumerate(["x" * 60_000, 7], start=1):
        for rank in (1, 0):
            answer(coordinator, rank, asked, payload)
        assert sorted(take(coordinator, 2)) == [(0, payload), (1, payload)]
    for rank in (0, 1):
        answer(coordinator, rank, 3, None)
    assert coordinator.wait_for_completion(LIMIT) == {0: True, 1: True}
    assert [status.answered for status in coordinator.statuses.values()] == [3, 3]
    coordinator.answer_worker(0, "too late")  # ignored


def test_a_question_and_a_report_end_the_wait_for_a_change(spawn):
    coordinator = spawn(1, "ask_for_numbers", devices=["cpu"])
    wait_until(lambda: coordinator.statuses[0].asked == 1)
    began = time.monotonic()
    coordinator.answer_worker(0, 1)
    while coordinator.results_queue.empty():
        coordinator.wait_for_change(LIMIT)
    assert time.monotonic() - began < LIMIT / 2


def test_a_worker_that_waits_for_an_answer_is_not_late(spawn):
    deadlines = Deadlines(progress=0.2)
    coordinator = spawn(1, "ask_for_numbers", devices=["cpu"], deadlines=deadlines)
    wait_until(lambda: coordinator.statuses[0].asked == 1)
    assert coordinator.wait_for_completion(1.5) == {0: False}
    assert coordinator.statuses[0].state is WorkerState.RUNNING
    answer(coordinator, 0, 1, None)
    assert coordinator.wait_for_completion(LIMIT) == {0: True}


def test_an_answer_to_a_killed_worker_does_not_reach_its_next_attempt(spawn):
    coordinator = spawn(1, "ask_for_numbers", devices=["cpu"])
    wait_until(lambda: coordinator.statuses[0].asked == 1)
    coordinator.workers[0].kill()
    coordinator.answer_worker(0, "for the first attempt")
    wait_until(lambda: coordinator.statuses[0].ended)
    coordinator.respawn_worker(0)
    answer(coordinator, 0, 1, "second")
    wait_until(lambda: coordinator.statuses[0].asked == 2)
    assert coordinator.collect_results()[-1:] == [(0, "second")]
    answer(coordinator, 0, 2, None)
    assert coordinator.wait_for_completion(LIMIT) == {0: True}

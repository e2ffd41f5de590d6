"""Supervision when the system, or the supervision itself, fails."""

import contextlib
import os
import resource
import signal
import threading
import time
from pathlib import Path

import pytest
from cases import slow

from virnucpro.errors import UsageError, WorkerError
from virnucpro.runtime.gpu_coordinator import GPUProcessCoordinator
from virnucpro.runtime.process import SpawnProcess
from virnucpro.runtime.status import WorkerState
from virnucpro.runtime.watchdog import Deadlines


@pytest.fixture
def spawn(coordinator_workers, tmp_path):
    """Spawn workers on CPUs, two if not stated otherwise; they end with the test."""
    with contextlib.ExitStack() as stack:

        def make(function, *args, n=2, **options):
            coordinator = GPUProcessCoordinator(n, tmp_path, ["cpu"] * n, **options)
            stack.enter_context(coordinator)
            coordinator.spawn_workers(getattr(coordinator_workers, function), args)
            return coordinator

        yield make


def ended_with_success(spawn):
    """Return a coordinator whose only worker has succeeded."""
    coordinator = spawn("succeed_or_fail", 0, n=1)
    coordinator.wait_for_completion(20)
    return coordinator


def refuse(*_):
    raise OSError(11, "Resource temporarily unavailable")


def children():
    listings = Path("/proc/self/task").glob("*/children")
    return {pid for listing in listings for pid in listing.read_text().split()}


def test_no_worker_is_left_when_the_system_refuses_one(coordinator_workers, tmp_path):
    before = children()
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    in_use = len(list(Path("/proc/self/fd").iterdir()))
    with GPUProcessCoordinator(20, tmp_path, ["cpu"] * 20) as coordinator:
        resource.setrlimit(resource.RLIMIT_NOFILE, (in_use + 20, limits[1]))
        try:
            with pytest.raises(OSError, match="Too many open files"):
                coordinator.spawn_workers(coordinator_workers.hang)
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, limits)
        assert coordinator.workers == {}
    assert len(children() - before) <= 1  # multiprocessing's tracker


def test_a_refused_thread_leaves_nothing(coordinator_workers, tmp_path, monkeypatch):
    def refuse(_):
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    coordinator = GPUProcessCoordinator(1, tmp_path, ["cpu"])
    with pytest.raises(RuntimeError, match="new thread"):
        coordinator.spawn_workers(coordinator_workers.echo)
    monkeypatch.undo()
    coordinator.terminate_all()


def test_an_interrupt_while_workers_start_leaves_none(coordinator_workers, tmp_path, monkeypatch):
    class Interrupted(threading.Event):
        def wait(self, timeout=None):
            super().wait(timeout)
            raise KeyboardInterrupt

    coordinator = GPUProcessCoordinator(2, tmp_path, ["cpu"] * 2)
    monkeypatch.setattr(threading, "Event", Interrupted)  # Thread.start waits for one
    with pytest.raises(KeyboardInterrupt):
        coordinator.spawn_workers(coordinator_workers.hang)
    assert coordinator.workers == {}


def test_a_process_that_survives_sigkill_is_reported(spawn, monkeypatch):
    monkeypatch.setattr("virnucpro.runtime.supervisor.TERMINATE_GRACE_S", 0.05)
    monkeypatch.setattr("virnucpro.runtime.supervisor.KILL_GRACE_S", 0.05)
    coordinator = spawn("hang")
    with monkeypatch.context() as patch:  # stands in for a process stuck in the kernel
        patch.setattr(SpawnProcess, "terminate", lambda _: None)
        patch.setattr(SpawnProcess, "kill", lambda _: None)
        pid = coordinator.workers[1].pid
        with pytest.raises(
            WorkerError, match=rf"worker 1 \(pid {pid}\) still runs .* after SIGKILL"
        ):
            coordinator.terminate_all()
    for worker in coordinator.workers.values():
        worker.kill()
        worker.join(20)
    assert coordinator.wait_for_completion(20) == {0: False, 1: False}


def test_a_supervisor_that_does_not_stop_its_workers_is_reported(spawn, monkeypatch):
    for name in ("TERMINATE_GRACE_S", "KILL_GRACE_S"):
        monkeypatch.setattr(f"virnucpro.runtime.supervisor.{name}", 0.05)
    monkeypatch.setattr("virnucpro.runtime.gpu_coordinator._EXTRA_S", 0.1)
    coordinator = spawn("hang")
    free = threading.Event()
    with monkeypatch.context() as patch:
        patch.setattr(GPUProcessCoordinator, "_stop_unneeded", lambda _: free.wait(20))
        try:
            with pytest.raises(WorkerError, match="did not stop the workers"):
                coordinator.terminate_all()
            for worker in coordinator.workers.values():
                stat = Path(f"/proc/{worker.pid}/stat")
                while stat.exists() and stat.read_text().rpartition(")")[2].split()[0] != "Z":
                    time.sleep(0.01)
        finally:
            free.set()
    monkeypatch.undo()
    assert coordinator.wait_for_completion(20) == {0: False, 1: False}


def test_a_failure_of_the_supervision_ends_all_waits(spawn, monkeypatch):
    coordinator = spawn("hang")
    monkeypatch.setattr(GPUProcessCoordinator, "_handle_event", lambda *_: 1 / 0)
    with pytest.raises(WorkerError, match="supervisor thread failed") as caught:
        coordinator.wait_for_completion(20)
    assert isinstance(caught.value.__cause__, ZeroDivisionError)
    assert not any(worker.is_alive() for worker in coordinator.workers.values())


def test_the_thread_ends_with_the_last_worker(spawn):
    coordinator = spawn("echo")
    thread = coordinator._thread
    coordinator.wait_for_completion(20)
    thread.join(20)
    assert not thread.is_alive()


@pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork:DeprecationWarning")
def test_a_fork_of_the_parent_leaves_the_workers_alone(spawn, tmp_path):
    coordinator = spawn("touch_and_wait", str(tmp_path))
    pid = os.fork()
    if pid == 0:
        try:
            coordinator._children._kill_at_exit()
        finally:
            os._exit(0)
    os.waitpid(pid, 0)
    (tmp_path / "go").touch()
    assert coordinator.wait_for_completion(20) == {0: True, 1: True}


def test_a_failed_worker_is_restarted_with_new_arguments(spawn):
    coordinator = spawn("succeed_or_fail", 1)
    coordinator.wait_for_completion(20)
    with pytest.raises(UsageError, match="worker 7"):
        coordinator.respawn_worker(7, (0,))
    first = coordinator.workers[1].pid
    coordinator.respawn_worker(1, (0,), delay=0.05)
    assert coordinator.statuses[1].state is WorkerState.WAITING
    assert not coordinator.statuses[1].ended
    with pytest.raises(UsageError, match="it is still running"):
        coordinator.respawn_worker(1, (0,))
    assert coordinator.wait_for_completion(20) == {0: True, 1: True}
    status = coordinator.statuses[1]
    assert (status.attempt, status.pid != first, status.reason) == (2, True, "")
    (fault,) = status.faults
    assert (fault.kind, fault.exit, fault.attempt) == ("ValueError", 1, 1)
    assert "was told to fail" in fault.traceback


def test_a_worker_that_waits_for_its_restart_can_be_stopped(spawn):
    ended = ended_with_success(spawn)
    ended.respawn_worker(0, (0,), delay=600.0)
    ended.terminate_all()
    assert ended.statuses[0].state is WorkerState.STOPPED
    with pytest.raises(UsageError, match="being stopped"):
        ended.respawn_worker(0)


def test_a_scheduled_restart_can_be_cancelled(spawn):
    ended = ended_with_success(spawn)
    ended.respawn_worker(0, (0,), delay=600.0)
    ended.stop_worker(0, "not needed")
    assert ended.wait_for_completion(20) == {0: False}
    assert ended.statuses[0].state is WorkerState.STOPPED


def test_a_restart_that_the_system_refuses_is_a_failed_attempt(spawn, monkeypatch):
    ended = ended_with_success(spawn)
    monkeypatch.setattr("virnucpro.runtime.supervisor.Child", refuse)
    ended.respawn_worker(0, (1,))
    assert ended.wait_for_completion(20) == {0: False}
    status = ended.statuses[0]
    assert (status.state, status.attempt, len(status.faults)) == (WorkerState.FAILED, 2, 1)
    assert "Resource temporarily unavailable" in status.reason


def test_a_refused_restart_can_be_renewed_at_once(spawn, monkeypatch):
    """By a thread that waits for its failure, before the supervisor thread goes on."""
    ended = ended_with_success(spawn)
    set_status = ended._set_status
    with monkeypatch.context() as patch:

        def renew(status):
            set_status(status)
            if status.state is WorkerState.FAILED:
                patch.undo()
                ended.respawn_worker(0, (9,))

        patch.setattr("virnucpro.runtime.supervisor.Child", refuse)
        patch.setattr(ended, "_set_status", renew)
        ended.respawn_worker(0, (9,))
        assert ended.wait_for_completion(20) == {0: True}
    assert ended.statuses[0].attempt == 3


@pytest.mark.parametrize(
    ("function", "exit_"),
    [
        slow("hang", "SIGTERM"),
        slow("hang_in_c", "SIGTERM"),
        ("hang_deaf", "SIGKILL"),
    ],
)
def test_a_hung_worker_is_ended_with_its_stacks_logged(
    function, exit_, spawn, tmp_path, monkeypatch
):
    monkeypatch.setattr("virnucpro.runtime.watchdog.STACKS_GRACE_S", 0.3)
    monkeypatch.setattr("virnucpro.runtime.supervisor.TERMINATE_GRACE_S", 0.3)
    coordinator = spawn(function, n=1, deadlines=Deadlines(start=2.0))
    assert coordinator.wait_for_completion(20) == {0: False}
    status = coordinator.statuses[0]
    assert (status.kind, status.exit) == ("Hang", exit_)
    assert "did not finish its setup within 2 s" in status.reason
    assert "coordinator_workers.py" in (tmp_path / "run" / "logs" / "rank-0000.log").read_text()


def test_an_interrupt_during_a_restart_leaves_no_worker(spawn, monkeypatch):
    def interrupted(_):
        raise KeyboardInterrupt

    ended = ended_with_success(spawn)
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", interrupted)
        with pytest.raises(KeyboardInterrupt):
            ended.respawn_worker(0, (0,))
    began = time.monotonic()
    ended.terminate_all()
    assert time.monotonic() - began < 5.0
    assert ended.statuses[0].ended


def stop_for_good(pid):
    """A SIGTERM that arrives before the SIGSTOP takes effect would be handled first."""
    os.kill(pid, signal.SIGSTOP)
    while Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "T":
        time.sleep(0.01)


@pytest.mark.parametrize("stopped", [False, True])
def test_one_unneeded_worker_can_be_ended(stopped, spawn, tmp_path, monkeypatch):
    monkeypatch.setattr("virnucpro.runtime.supervisor.TERMINATE_GRACE_S", 0.2)
    coordinator = spawn("touch_and_wait", str(tmp_path))
    if stopped:
        stop_for_good(coordinator.workers[1].pid)
    while not coordinator.statuses[1].ended:
        coordinator.stop_worker(1, "not needed")  # as often as somebody thinks of it
        coordinator.wait_for_change(0.05)
    status = coordinator.statuses[1]
    assert status.state is WorkerState.STOPPED
    assert status.exit == ("SIGKILL" if stopped else "SIGTERM")
    assert "not needed" in status.reason
    (tmp_path / "go").touch()
    assert coordinator.wait_for_completion(20) == {0: True, 1: False}

"""Processes that are started before it is known what they will do, with real ones."""

import errno
import os
import signal
from pathlib import Path

import pytest

from virnucpro.errors import UsageError
from virnucpro.pipeline.gpu_coordinator import GPUProcessCoordinator
from virnucpro.runtime.child import Setup
from virnucpro.runtime.devices import Device
from virnucpro.runtime.process import Child, Sealed
from virnucpro.runtime.standby import Standby
from virnucpro.runtime.status import WorkerState

GPUS = [Device("cuda", "GPU-one"), Device("cuda", "GPU-two"), Device("cuda", "GPU-three")]


@pytest.fixture
def workers(importable, monkeypatch):
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    return importable("standby_workers")


def lives(pid):
    return Path(f"/proc/{pid}").exists()


def run(folder, standby, function, *args, devices=GPUS, ranks=None, **options):
    """Run a coordinator to the end; return the reports by rank, and the statuses."""
    ranks = len(devices) if ranks is None else ranks
    with GPUProcessCoordinator(ranks, folder, devices, standby=standby, **options) as coordinator:
        coordinator.spawn_workers(function, args)
        assert standby.pids == {}
        coordinator.wait_for_completion(60)
        reports = {report["rank"]: report for report in coordinator.collect_results()}
        return reports, coordinator.statuses


def test_workers_run_in_the_processes_that_stood_by(workers, tmp_path):
    with Standby(GPUS, workers.prepare, threads=3) as standby:
        pids = standby.pids
        reports, statuses = run(tmp_path, standby, workers.tell, "some", "work", threads=2)
    assert {rank: report["pid"] for rank, report in reports.items()} == pids
    assert all(status.succeeded for status in statuses.values())
    for rank, report in reports.items():
        assert report["world_size"] == 3
        assert report["args"] == ("some", "work")
        assert report["mask at import"] == GPUS[rank].mask
        assert report["threads"] == "2"  # as the order says, for what is not imported yet
        log = tmp_path / "logs" / f"rank-{rank:04d}.log"
        assert log.read_text() == f"rank {rank} was here\n"


def test_those_that_are_not_needed_are_ended_before_the_work_begins(workers, tmp_path):
    with Standby(GPUS, workers.prepare) as standby:
        pids = standby.pids
        reports, statuses = run(tmp_path, standby, workers.tell, ranks=1)
        assert not lives(pids[1])
        assert not lives(pids[2])
    assert set(statuses) == set(reports) == {0}
    assert reports[0]["pid"] == pids[0]


def test_all_are_ended_where_nobody_took_them(workers):
    with Standby(GPUS, workers.prepare) as standby:
        pids = standby.pids
        assert len(pids) == 3
        assert all(lives(pid) for pid in pids.values())
    assert standby.pids == {}
    assert not any(lives(pid) for pid in pids.values())


def test_another_process_takes_the_place_of_a_dead_one(workers, tmp_path):
    with Standby(GPUS, workers.prepare) as standby:
        pids = standby.pids
        os.kill(pids[1], signal.SIGKILL)
        os.waitid(os.P_PID, pids[1], os.WEXITED | os.WNOWAIT)
        reports, statuses = run(tmp_path, standby, workers.tell)
    assert all(status.succeeded and status.attempt == 1 for status in statuses.values())
    assert (reports[0]["pid"], reports[2]["pid"]) == (pids[0], pids[2])
    assert reports[1]["pid"] != pids[1]
    assert reports[1]["mask at import"] == "GPU-two"


def test_another_process_takes_the_place_of_one_for_another_device(workers, tmp_path):
    with Standby([GPUS[1], GPUS[1]], workers.prepare) as standby:
        pids = standby.pids
        reports, _ = run(tmp_path, standby, workers.tell, devices=GPUS[:2])
        assert not lives(pids[0])
    assert reports[0]["pid"] != pids[0]
    assert reports[0]["mask at import"] == "GPU-one"
    assert reports[1]["pid"] == pids[1]


def test_one_that_dies_with_its_order_is_a_rank_that_failed(workers, tmp_path):
    with Standby(GPUS[:1], workers.prepare) as standby:
        os.kill(standby.pids[0], signal.SIGSTOP)  # alive, and never to read it
        pid = standby.pids[0]
        with GPUProcessCoordinator(1, tmp_path, GPUS[:1], standby=standby) as coordinator:
            coordinator.spawn_workers(workers.tell)
            os.kill(pid, signal.SIGKILL)
            assert coordinator.wait_for_completion(60) == {0: False}
            assert coordinator.statuses[0].state is WorkerState.FAILED
            assert coordinator.statuses[0].exit == "SIGKILL"
            coordinator.respawn_worker(0)
            assert coordinator.wait_for_completion(60) == {0: True}


def test_an_error_of_the_preparation_is_the_workers(workers, tmp_path):
    with Standby(GPUS[:1], workers.need_what_is_not_there) as standby:
        pid = standby.pids[0]
        _, statuses = run(tmp_path, standby, workers.tell, devices=GPUS[:1])
    assert (statuses[0].pid, statuses[0].permanent) == (pid, True)
    assert statuses[0].reason == "ModuleNotFoundError: No module named 'no_such_module_of_tests'"
    log = (tmp_path / "logs" / "rank-0000.log").read_text()
    assert "need_what_is_not_there" in log
    assert "was here" not in log


def test_a_preparation_that_failed_once_is_tried_in_a_fresh_process(workers, tmp_path, monkeypatch):
    monkeypatch.setenv("FAILED_BEFORE", str(tmp_path / "failed"))
    with (
        Standby(GPUS[:1], workers.fail_once) as standby,
        GPUProcessCoordinator(1, tmp_path, GPUS[:1], standby=standby) as coordinator,
    ):
        coordinator.spawn_workers(workers.set_up_and_tell)
        assert coordinator.wait_for_completion(60) == {0: False}
        assert "Input/output error" in coordinator.statuses[0].reason
        assert not coordinator.statuses[0].permanent
        coordinator.respawn_worker(0)
        assert coordinator.wait_for_completion(60) == {0: True}


def test_an_interrupt_in_the_preparation_is_told_in_the_log_alone(workers, tmp_path, capfd):
    with Standby(GPUS[:1], workers.be_interrupted) as standby:
        _, statuses = run(tmp_path, standby, workers.tell, devices=GPUS[:1])
    assert statuses[0].reason.startswith("KeyboardInterrupt")
    assert capfd.readouterr() == ("", "")


def test_what_the_preparation_prints_is_in_the_log(workers, tmp_path, capfd):
    with Standby(GPUS[:1], workers.prepare_and_say_so) as standby:
        run(tmp_path, standby, workers.tell, devices=GPUS[:1])
    log = (tmp_path / "logs" / "rank-0000.log").read_text()
    first = ["and on standard error", "prepared, on standard output"]
    assert sorted(log.splitlines()) == [*first, "rank 0 was here"]
    assert log.endswith("rank 0 was here\n")
    assert capfd.readouterr() == ("", "")


def test_without_logs_it_goes_to_standard_error_when_there_is_work(workers, tmp_path, capfd):
    with Standby(GPUS[:1], workers.prepare_and_say_so) as standby:
        run(tmp_path, standby, workers.tell, devices=GPUS[:1], logs=False)
    output, errors = capfd.readouterr()
    assert output == "rank 0 was here\n"
    assert sorted(errors.splitlines()) == ["and on standard error", "prepared, on standard output"]


def test_an_order_that_cannot_be_sent_leaves_no_process(workers, tmp_path):
    with Standby(GPUS, workers.prepare) as standby:
        pids = standby.pids
        with (
            GPUProcessCoordinator(3, tmp_path, GPUS, standby=standby) as coordinator,
            pytest.raises(UsageError, match="cannot be sent to a worker process"),
        ):
            coordinator.spawn_workers(workers.tell, (lambda: None,))
        assert not any(lives(pid) for pid in pids.values())


def test_ctrl_c_leaves_them_waiting(workers, tmp_path):
    with Standby(GPUS[:1], workers.prepare) as standby:
        (pid,) = standby.pids.values()
        os.kill(pid, signal.SIGINT)  # at any moment of its start
        reports, _ = run(tmp_path, standby, workers.tell, devices=GPUS[:1])
    assert reports[0]["pid"] == pid


def test_a_process_that_the_system_refuses_is_not_missed(workers, tmp_path, monkeypatch):
    made = []

    class Scarce(Child):
        def __init__(self, *args):
            if made:
                raise OSError(errno.EAGAIN, "Resource temporarily unavailable")
            made.append(1)
            super().__init__(*args)

    monkeypatch.setattr("virnucpro.runtime.standby.Child", Scarce)
    with Standby(GPUS, workers.prepare) as standby:
        assert set(standby.pids) == {0}
        reports, _ = run(tmp_path, standby, workers.tell)
    assert set(reports) == {0, 1, 2}


def test_an_interrupt_while_they_are_started_leaves_none(workers, monkeypatch):
    made = []

    class Interrupted(Child):
        def __init__(self, *args):
            if made:
                raise KeyboardInterrupt
            super().__init__(*args)
            made.append(self.pid)

    monkeypatch.setattr("virnucpro.runtime.standby.Child", Interrupted)
    with pytest.raises(KeyboardInterrupt):
        Standby(GPUS, workers.prepare)
    assert made
    assert not lives(made[0])


def test_an_order_of_any_size_does_not_wait_for_the_process(workers):
    with Standby(GPUS[:1], workers.prepare) as standby:
        (pid,) = standby.pids.values()
        os.kill(pid, signal.SIGSTOP)
        order = Sealed((workers.tell, (b"x" * 50_000_000,)))
        child = standby.take(Setup(0, 1, os.getpid(), GPUS[0].environment, None), order)
        assert child.pid == pid
        child.kill()
        child.process.join()
        child.close()

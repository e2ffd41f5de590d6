"""The event log, and printing by workers, when their output fails."""

import json

import pytest

from virnucpro.dispatch import Dispatcher
from virnucpro.runtime.events import EventLog
from virnucpro.runtime.gpu_coordinator import GPUProcessCoordinator


@pytest.mark.parametrize("log_format", ["text", "json"])
def test_a_log_that_cannot_be_written_raises_nothing(tmp_path, log_format):
    for path in ("/dev/full", tmp_path / "missing" / "log", tmp_path):
        EventLog(path, log_format).write("started", "work started", rank=0)


def test_a_log_that_works_again_has_the_next_line(tmp_path):
    log = EventLog(tmp_path / "later" / "log", "json", {"rank": 1})
    log.write("lost", "folder is missing")
    log.path.parent.mkdir()
    log.write("written", "folder exists", path=tmp_path)
    content = json.loads(log.path.read_text())
    assert (content["event"], content["rank"], content["path"]) == ("written", 1, str(tmp_path))


def test_a_rank_with_a_full_log_finishes(coordinator_workers, tmp_path):
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / "rank-0000.log").symlink_to("/dev/full")
    with GPUProcessCoordinator(1, tmp_path, ["cpu"]) as coordinator:
        coordinator.spawn_workers(coordinator_workers.print_much)
        assert coordinator.wait_for_completion(20) == {0: True}


def test_a_task_that_prints_into_a_full_log_succeeds(importable, tmp_path):
    workers = importable("dispatch_workers")
    (tmp_path / "worker-0.log").symlink_to("/dev/full")
    results = Dispatcher(workers.Worker, [0], log_folder=tmp_path).map([("stdout",), 1])
    assert list(results) == [None, 1]

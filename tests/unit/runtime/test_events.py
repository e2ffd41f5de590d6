"""The event log, and printing by workers, when their output fails."""

import os
import stat
from datetime import datetime
from pathlib import Path

import pytest

from virnucpro.dispatch import Dispatcher
from virnucpro.runtime.events import EventLog
from virnucpro.runtime.gpu_coordinator import GPUProcessCoordinator


def test_a_log_that_cannot_be_written_raises_nothing(tmp_path):
    for path in (Path("/dev/full"), tmp_path / "missing" / "log", tmp_path):
        EventLog(path).write("work started")


def test_a_log_that_works_again_has_the_next_line(tmp_path):
    log = EventLog(tmp_path / "later" / "log")
    log.write("folder is missing")
    log.path.parent.mkdir()
    log.write("folder exists")
    moment, _, text = log.path.read_text().partition(" ")
    assert datetime.fromisoformat(moment).tzinfo is not None
    assert text == "folder exists\n"


def make_full(path):
    """Make a file to which nothing can be written: a device, since a link is refused."""
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        os.mknod(path, stat.S_IFCHR | 0o666, Path("/dev/full").stat().st_rdev)
        path.open("wb").close()
    except PermissionError:
        pytest.skip("needs the right to make a device")


def test_a_rank_with_a_full_log_finishes(coordinator_workers, tmp_path):
    make_full(tmp_path / "run" / "logs" / "rank-0000.log")
    with GPUProcessCoordinator(1, tmp_path, ["cpu"]) as coordinator:
        coordinator.spawn_workers(coordinator_workers.print_much)
        assert coordinator.wait_for_completion(20) == {0: True}


def test_a_log_that_is_a_link_is_refused(coordinator_workers, tmp_path):
    (tmp_path / "thesis").write_text("of years")
    (tmp_path / "run" / "logs").mkdir(parents=True)
    (tmp_path / "run" / "logs" / "rank-0000.log").symlink_to(tmp_path / "thesis")
    with GPUProcessCoordinator(1, tmp_path, ["cpu"]) as coordinator:
        coordinator.spawn_workers(coordinator_workers.print_much)
        assert coordinator.wait_for_completion(20) == {0: False}
        assert "symbolic links" in coordinator.statuses[0].reason
    assert (tmp_path / "thesis").read_text() == "of years"


def test_a_task_that_prints_into_a_full_log_succeeds(importable, tmp_path):
    workers = importable("dispatch_workers")
    make_full(tmp_path / "worker-0.log")
    results = Dispatcher(workers.Worker, [0], log_folder=tmp_path).map([("stdout",), 1])
    assert list(results) == [None, 1]

"""Reassignment of units when ranks end at moments that a real process does not reproduce."""

import time
from dataclasses import replace
from pathlib import Path

import pytest

from virnucpro.pipeline.execution import Execution
from virnucpro.pipeline.jobs.job import SilentReporter
from virnucpro.pipeline.run.coordinator_files import CoordinatorLog
from virnucpro.pipeline.scheduling.scheduler import OpenUnits, RankScheduler
from virnucpro.pipeline.worker.rank_main import Share
from virnucpro.run_dir import RunDirectory
from virnucpro.runtime.policy import RestartPolicy
from virnucpro.runtime.status import WorkerState, WorkerStatus

BUSY = WorkerStatus(0, WorkerState.RUNNING, 1, 0.0, 0.0, done=0, total=9, begun={0: 1})
DONE = replace(BUSY, state=WorkerState.SUCCEEDED, done=9, ended_at=1.0)
FAILED = replace(BUSY, state=WorkerState.FAILED, reason="killed", ended_at=1.0)


class Ranks:
    """Ranks whose states the test sets; orders to them are recorded."""

    def __init__(self, *statuses):
        self.world_size = len(statuses)
        self.statuses = {}
        self.started, self.stopped = {}, []
        for rank, status in enumerate(statuses):
            self.set(rank, status)

    def set(self, rank, status):
        self.statuses[rank] = replace(status, rank=rank, last_heartbeat=time.monotonic())

    def collect_results(self):
        return []

    def respawn_worker(self, rank, arguments, _delay):
        self.started[rank] = arguments[1][rank].units
        self.set(rank, replace(BUSY, attempt=self.statuses[rank].attempt + 1))

    def stop_worker(self, rank, _why):
        self.stopped.append(rank)


@pytest.fixture
def scheduler_of(tmp_path):
    """Return a function that makes a scheduler of 6 units for some ranks."""

    def make(ranks, restarts=3, **options):
        run = RunDirectory(tmp_path)
        execution = Execution(Path(), restarts=RestartPolicy(max_restarts=restarts), **options)
        log = CoordinatorLog(run, SilentReporter(), "text")
        return RankScheduler(ranks, None, range(6), OpenUnits(run, []), execution, log)

    return make


def commit(folder, *units):
    run = RunDirectory(folder)
    run.shard(0).mkdir(parents=True, exist_ok=True)
    for unit in units:
        run.segment(0, unit).touch()


def ignore(_statuses):
    pass


@pytest.mark.parametrize(
    ("committed", "statuses", "redeal", "started", "stopped"),
    [
        pytest.param([0, 2, 4], [DONE, FAILED], True, {0: (1, 3, 5)}, [], id="failed rank"),
        pytest.param([0, 2, 4, 3], [DONE, FAILED], True, {0: (1, 5)}, [], id="some are committed"),
        pytest.param([0, 3], [DONE, DONE, FAILED], True, {0: (2,), 1: (5,)}, [], id="two idle"),
        pytest.param([0, 2, 4], [DONE, FAILED], False, {}, [], id="without reassignment"),
        pytest.param([], [FAILED, FAILED], True, {}, [], id="no rank is left"),
        pytest.param([0, 2, 4], [BUSY, FAILED], True, {}, [], id="idle ranks have failed"),
        pytest.param(range(6), [DONE, BUSY], True, {}, [1], id="others did all of its units"),
        pytest.param([], [BUSY, BUSY], True, {}, [], id="no rank is idle"),
    ],
)
def test_idle_ranks_get_the_units_of_failed_ones(
    committed, statuses, redeal, started, stopped, scheduler_of, tmp_path
):
    ranks = Ranks(*statuses)
    commit(tmp_path, *committed)
    scheduler_of(ranks, restarts=0, redeal=redeal).step(ignore)
    assert (ranks.started, ranks.stopped) == (started, stopped)


def test_units_of_a_failed_rank_that_are_committed_meanwhile_are_not_reassigned(
    scheduler_of, tmp_path
):
    ranks = Ranks(BUSY, FAILED)
    scheduler = scheduler_of(ranks, restarts=0)
    scheduler.step(ignore)
    commit(tmp_path, 0, 2, 4, 3)
    ranks.set(0, DONE)
    scheduler.step(ignore)
    assert ranks.started == {0: (1, 5)}


@pytest.mark.parametrize(
    ("began_at", "started"), [(-9.0, {1: (4,)}), (-0.1, {})], ids=["slow", "fast"]
)
def test_an_idle_rank_steals_from_a_slow_one(began_at, started, scheduler_of, tmp_path):
    ranks = Ranks(BUSY, DONE)
    now = time.monotonic()
    ranks.statuses[0] = replace(BUSY, began_at=now + began_at, last_heartbeat=now)
    ranks.statuses[1] = replace(DONE, rank=1, started_at=0.0, began_at=1.0)
    scheduler = scheduler_of(ranks)
    scheduler._shares = {0: Share((0, 1, 2, 3, 4)), 1: Share((5,))}
    commit(tmp_path, 0, 5)
    scheduler.step(ignore)
    assert ranks.started == started


def test_a_failed_rank_is_restarted_with_its_own_units(scheduler_of):
    ranks = Ranks(BUSY, FAILED)
    scheduler = scheduler_of(ranks)
    scheduler.step(ignore)
    assert ranks.started == {1: (1, 3, 5)}
    assert [fault.rank for fault in scheduler.faults] == [1]


def test_a_rank_that_failed_after_its_last_unit_is_not_restarted(scheduler_of, tmp_path):
    ranks = Ranks(BUSY, FAILED)
    commit(tmp_path, 1, 3, 5)
    scheduler_of(ranks).step(ignore)
    assert ranks.started == {}


@pytest.mark.parametrize("restarts", [0, 3])
def test_a_failure_between_two_looks_is_handled_before_the_rank_counts_as_idle(
    restarts, scheduler_of
):
    ranks = Ranks(DONE, BUSY, FAILED)
    scheduler = scheduler_of(ranks, restarts)
    scheduler._handle_ends()
    ranks.set(1, FAILED)
    scheduler._reassign()
    assert 1 not in ranks.started
    scheduler.step(ignore)
    assert {fault.rank for fault in scheduler.faults} == {1, 2}


def test_finish_restarts_no_rank(scheduler_of, tmp_path):
    (tmp_path / "logs").mkdir()
    ranks = Ranks(FAILED, DONE)
    scheduler_of(ranks).finish()
    assert ranks.started == {}
    log = (tmp_path / "logs" / "coordinator.log").read_text()
    assert "worker 0 failed: killed; failed permanently; 3 of its units are left" in log
    assert "worker 1: succeeded at 9/9 rows" in log

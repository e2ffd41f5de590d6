"""Restarts and reassignment of units, with fake ranks and a fake clock."""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from virnucpro.compute.rank_main import Share
from virnucpro.compute.scheduler import CommittedUnits, RankScheduler, assign_in_turn
from virnucpro.run.coordinator_files import CoordinatorLog, read_budgets
from virnucpro.run.execution import Execution
from virnucpro.run.reporter import Reporter
from virnucpro.run_dir import RunDirectory
from virnucpro.runtime.policy import Findings, TaskSpan
from virnucpro.runtime.status import WorkerState, WorkerStatus, waiting

BUSY = WorkerStatus(0, WorkerState.RUNNING, 1, 0.0, 0.0, done=0, total=9, begun={0: 1})
DONE = replace(BUSY, state=WorkerState.SUCCEEDED, done=9, ended_at=1.0)
FAILED = replace(BUSY, state=WorkerState.FAILED, reason="killed", ended_at=1.0)
SPAN = TaskSpan(task=3, stage=0, first=0, stop=8)
DIED_IN_UNIT_3 = replace(FAILED, place=SPAN)
READY_IN_1_S = replace(DONE, began_at=1.0)


class Ranks:
    """Ranks whose states the test sets; starts and stops are recorded.

    `started` contains the units of the last start of each rank. `starts` contains the task, the
    share and the delay of each start.
    """

    def __init__(self, *statuses, reports=()):
        self.world_size = len(statuses)
        self.statuses = {}
        self.reports = list(reports)
        self.started, self.starts, self.stopped = {}, [], []
        for rank, status in enumerate(statuses):
            self.set(rank, status)

    def set(self, rank, status):
        self.statuses[rank] = replace(status, rank=rank)

    def fail(self, rank, status=FAILED):
        """Set the status of a failed rank, and keep its attempt and its earlier failures."""
        now = self.statuses[rank]
        self.set(rank, replace(status, attempt=now.attempt, faults=now.faults))

    def collect_results(self):
        reports, self.reports = self.reports, []
        return reports

    def respawn_worker(self, rank, arguments, delay):
        task, shares = arguments
        self.started[rank] = shares[rank].units
        self.starts.append((task, shares[rank], delay))
        former = waiting(self.statuses[rank])
        self.set(rank, replace(BUSY, attempt=former.attempt + 1, faults=former.faults))

    def stop_worker(self, rank, _why):
        self.stopped.append(rank)


@pytest.fixture(autouse=True)
def clock(monkeypatch):
    """Replace the scheduler's clock; the test sets `now`."""
    fake = SimpleNamespace(now=0.0)
    double = SimpleNamespace(monotonic=lambda: fake.now)
    monkeypatch.setattr("virnucpro.compute.scheduler.time", double)
    return fake


@pytest.fixture
def scheduler_of(tmp_path):
    """Return a function that makes a scheduler of 6 units for some ranks."""

    def make(ranks, restarts=3, task=None, **options):
        run = RunDirectory(tmp_path)
        execution = Execution(Path(), max_restarts=restarts, **options)
        log = CoordinatorLog(run, Reporter(), "text")
        assigned = assign_in_turn(range(6), range(ranks.world_size))
        shares = {rank: Share(units) for rank, units in assigned.items()}
        return RankScheduler(ranks, task, shares, CommittedUnits(run, []), execution, log)

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
    ("committed", "working", "started"),
    [
        pytest.param([0, 1], 9.0, {1: (5,)}, id="slow"),
        pytest.param([0, 1], 1.2, {1: (5,)}, id="4 units of 0.6 s: more than two starts"),
        pytest.param([0, 1], 1.0, {}, id="4 units of 0.5 s: as long as two starts"),
        pytest.param([], 9.0, {}, id="the time per unit is unknown"),
    ],
)
def test_an_idle_rank_steals_from_a_rank_with_much_work(
    committed, working, started, scheduler_of, tmp_path, clock
):
    ranks = Ranks(replace(BUSY, began_at=2.0, last_heartbeat=2.0 + working), READY_IN_1_S)
    clock.now = 5.0 + working
    scheduler = scheduler_of(ranks)
    scheduler._shares = {0: Share(tuple(range(6))), 1: Share(())}
    commit(tmp_path, *committed)
    scheduler.step(ignore)
    assert ranks.started == started


@pytest.mark.parametrize(("now", "started"), [(8.0, {}), (8.1, {1: (0, 2, 4)})])
def test_a_rank_that_is_silent_for_too_long_loses_all_units(now, started, scheduler_of, clock):
    """The limit is 5 s plus three times the start time of 1 s."""
    ranks = Ranks(BUSY, READY_IN_1_S)
    clock.now = now
    scheduler_of(ranks).step(ignore)
    assert ranks.started == started


def test_a_rank_that_failed_twice_loses_all_units_except_suspects(scheduler_of):
    ranks = Ranks(BUSY, DIED_IN_UNIT_3)
    scheduler = scheduler_of(ranks)
    scheduler.step(ignore)
    ranks.set(0, DONE)
    scheduler.step(ignore)
    assert 0 not in ranks.started  # one failure may be temporary
    ranks.fail(1, DIED_IN_UNIT_3)
    scheduler.step(ignore)
    assert ranks.started[0] == (1, 5)


def test_an_idle_rank_gets_the_findings_and_counts_its_earlier_rows(scheduler_of):
    ranks = Ranks(DONE, DIED_IN_UNIT_3)
    scheduler_of(ranks, restarts=0).step(ignore)
    ((_, share, delay),) = ranks.starts
    expected = Share((1, 3, 5), DONE.done, Findings(seen=(SPAN,)), prefetch=False)
    assert (share, delay) == (expected, 0.0)


def test_each_restart_gets_the_findings_and_a_longer_delay(scheduler_of):
    ranks = Ranks(BUSY, DIED_IN_UNIT_3)
    scheduler = scheduler_of(ranks)
    scheduler._shares[1] = Share((1, 3, 5), rows_before=4)
    scheduler.step(ignore)
    ranks.fail(1, DIED_IN_UNIT_3)
    scheduler.step(ignore)
    once, twice = Findings(seen=(SPAN,)), Findings(suspects=(SPAN,))
    assert [start[1:] for start in ranks.starts] == [
        (Share((1, 3, 5), 4, once, prefetch=False), 0.5),
        (Share((1, 3, 5), 4, twice, prefetch=False), 1.0),
    ]


def test_a_restarted_rank_gets_the_token_budgets_that_other_ranks_found(
    scheduler_of, tmp_path, doubles
):
    statistics = {"rank": 0, "rows": 9}
    reports = [{"rank": 0, "device": "H200", "learnt": {"esm2": 512}}, statistics]
    ranks = Ranks(BUSY, FAILED, reports=reports)
    scheduler = scheduler_of(ranks, task=doubles.mini_task(tmp_path, 10))
    scheduler.step(ignore)
    ((task, _, _),) = ranks.starts
    assert task.learnt == read_budgets(RunDirectory(tmp_path)) == {"H200": {"esm2": 512}}
    assert scheduler.reports == [statistics]


def test_a_unit_with_an_invalid_segment_is_open_until_the_file_is_replaced(tmp_path):
    run = RunDirectory(tmp_path)
    commit(tmp_path, 1, 2)
    units = CommittedUnits(run, [run.segment(0, 2)])
    assert units.numbers() == {1}
    new = tmp_path / "new"
    new.touch()
    new.replace(run.segment(0, 2))
    assert units.numbers() == {1, 2}


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

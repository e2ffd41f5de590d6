"""Restarts and hand-outs of units, with fake ranks and a fake clock."""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from virnucpro.compute.rank_main import Share
from virnucpro.compute.scheduler import RankScheduler
from virnucpro.run.coordinator_files import CoordinatorLog
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


class Ranks:
    """Ranks whose states the test sets; starts, stops and answers are recorded.

    `starts` contains the task, the share and the delay of each restart. `answers` contains the
    units that each rank got, or None at the end.
    """

    def __init__(self, *statuses):
        self.statuses = {}
        self.reports = []
        self.starts, self.stopped = [], []
        self.answers = {rank: [] for rank in range(len(statuses))}
        for rank, status in enumerate(statuses):
            self.statuses[rank] = replace(status, rank=rank)

    def change(self, rank, **changes):
        self.statuses[rank] = replace(self.statuses[rank], **changes)

    def ask(self, rank):
        self.change(rank, asked=self.statuses[rank].asked + 1)

    def commit(self, rank, *units):
        self.reports += [{"rank": rank, "committed": unit, "rows": 4} for unit in units]

    def fail(self, rank, status=FAILED):
        """Set the status of a failed rank, and keep its attempt and its earlier failures."""
        now = self.statuses[rank]
        self.statuses[rank] = replace(status, rank=rank, attempt=now.attempt, faults=now.faults)

    def collect_results(self):
        reports, self.reports = self.reports, []
        return reports

    def respawn_worker(self, rank, arguments, delay):
        task, shares = arguments
        self.starts.append((task, shares[rank], delay))
        former = waiting(self.statuses[rank])
        self.statuses[rank] = replace(
            BUSY, rank=rank, attempt=former.attempt + 1, faults=former.faults
        )

    def answer_worker(self, rank, assignment):
        self.answers[rank].append(assignment and assignment.unit)
        self.change(rank, answered=self.statuses[rank].asked)

    def stop_worker(self, rank, _why):
        self.stopped.append(rank)

    def terminate_all(self):
        pass


@pytest.fixture(autouse=True)
def clock(monkeypatch):
    """Replace the scheduler's clock; the test sets `now`."""
    fake = SimpleNamespace(now=0.0)
    double = SimpleNamespace(monotonic=lambda: fake.now)
    monkeypatch.setattr("virnucpro.compute.scheduler.time", double)
    return fake


def scheduler_of(tmp_path, ranks, restarts=3, task=None, **options):
    """Return a scheduler of 6 units for some ranks."""
    execution = Execution(Path(), max_restarts=restarts, **options)
    log = CoordinatorLog(RunDirectory(tmp_path), Reporter())
    world_size = len(ranks.statuses)
    shares = {rank: Share(tuple(range(rank, 6, world_size))) for rank in range(world_size)}
    return RankScheduler(ranks, task, shares, execution, log)


def step(scheduler, *asking):
    """Let ranks ask, and make a step of the scheduler."""
    for rank in asking:
        scheduler._ranks.ask(rank)
    scheduler.step(lambda _: None)


def compute(scheduler, *, rank, units):
    """Let a rank ask for each unit, and commit it."""
    for unit in units:
        step(scheduler, rank)
        scheduler._ranks.commit(rank, unit)


def test_ranks_get_their_own_units_then_those_of_others_then_the_end(tmp_path):
    ranks = Ranks(BUSY, BUSY)
    scheduler = scheduler_of(tmp_path, ranks)
    step(scheduler, 0, 1)
    step(scheduler)  # an answered rank gets no second answer
    assert ranks.answers == {0: [0], 1: [1]}
    for unit in (1, 3, 5, 4):
        ranks.commit(1, unit)
        step(scheduler, 1)
    assert ranks.answers == {0: [0], 1: [1, 3, 5, 4, 2]}
    ranks.commit(1, 2)
    step(scheduler, 1)
    assert ranks.answers[1] == [1, 3, 5, 4, 2]  # rank 0 has a unit: it may come back
    ranks.commit(0, 0)
    step(scheduler, 0)
    assert ranks.answers == {0: [0, None], 1: [1, 3, 5, 4, 2, None]}
    assert ranks.stopped == []


def test_units_of_a_permanently_failed_rank_go_to_the_others(tmp_path):
    ranks = Ranks(BUSY, BUSY)
    scheduler = scheduler_of(tmp_path, ranks, restarts=0)
    step(scheduler, 1)
    step(scheduler, 1)
    ranks.commit(1, 1)  # arrives with the failure
    ranks.fail(1, DIED_IN_UNIT_3)
    compute(scheduler, rank=0, units=(0, 2, 4, 5, 3))
    step(scheduler, 0)
    assert (ranks.answers[0], ranks.starts) == ([0, 2, 4, 5, 3, None], [])


@pytest.mark.parametrize(("now", "copied"), [(11.0, []), (11.1, [0])])
def test_units_of_a_silent_rank_are_copied(now, copied, tmp_path, clock):
    """The limit is 5 s plus three times the time of a unit of 1 s."""
    ranks = Ranks(replace(BUSY, began_at=2.0, last_heartbeat=3.0), BUSY)
    scheduler = scheduler_of(tmp_path, ranks)
    step(scheduler, 0)
    compute(scheduler, rank=1, units=(1, 3, 5, 4, 2))
    step(scheduler)
    clock.now = now
    step(scheduler, 1)
    assert ranks.answers[1] == [1, 3, 5, 4, 2, *copied]
    if copied == [0]:
        ranks.commit(1, 0)
        step(scheduler, 1)
        assert (ranks.answers[1][-1], ranks.stopped) == (None, [0])


def test_a_restarted_rank_whose_units_others_computed_is_stopped(tmp_path):
    ranks = Ranks(BUSY, FAILED)
    scheduler = scheduler_of(tmp_path, ranks)
    compute(scheduler, rank=0, units=(0, 2, 4, 5, 3, 1))
    step(scheduler, 0)
    assert ranks.answers[0] == [0, 2, 4, 5, 3, 1, None]
    assert ranks.stopped == [1]


def test_each_restart_gets_the_findings_the_units_left_and_a_longer_delay(tmp_path):
    ranks = Ranks(BUSY, BUSY)
    scheduler = scheduler_of(tmp_path, ranks)
    step(scheduler, 1)
    ranks.commit(1, 1)
    ranks.fail(1, DIED_IN_UNIT_3)
    step(scheduler)
    ranks.fail(1, DIED_IN_UNIT_3)
    step(scheduler)
    once, twice = Findings(seen=(SPAN,)), Findings(suspects=(SPAN,))
    assert [start[1:] for start in ranks.starts] == [
        (Share((5, 3), 4, once, prefetch=False), 0.5),
        (Share((5, 3), 4, twice, prefetch=False), 1.0),
    ]
    assert [fault.rank for fault in scheduler.reports.faults] == [1, 1]


def test_a_unit_comes_with_its_findings(tmp_path):
    ranks = Ranks(DIED_IN_UNIT_3)
    got = []
    ranks.answer_worker = lambda _, assignment: got.append(assignment[:2])
    scheduler = scheduler_of(tmp_path, ranks)
    step(scheduler)
    compute(scheduler, rank=0, units=(0, 1, 2, 4, 5))
    step(scheduler, 0)
    assert got == [*((n, Findings()) for n in (0, 1, 2, 4, 5)), (3, Findings(seen=(SPAN,)))]


def test_units_that_a_dead_rank_held_are_not_tokenised_in_advance(tmp_path):
    ranks = Ranks(BUSY, BUSY)
    got = []
    ranks.answer_worker = lambda _, assignment: got.append(assignment)
    scheduler = scheduler_of(tmp_path, ranks)
    step(scheduler, 0)
    step(scheduler, 0)
    ranks.fail(0, replace(DIED_IN_UNIT_3, place=SPAN._replace(task=0)))  # and not in unit 2
    compute(scheduler, rank=1, units=(1, 3, 5, 4, 2))
    assert [unit for unit, *_ in got] == [0, 2, 1, 3, 5, 4, 2]
    assert [prefetch for *_, prefetch in got] == [*[True] * 6, False]


def test_a_rank_that_failed_after_the_last_unit_is_not_restarted(tmp_path):
    ranks = Ranks(BUSY, FAILED)
    ranks.commit(1, *range(6))
    step(scheduler_of(tmp_path, ranks))
    assert ranks.starts == []


def test_the_end_restarts_no_rank(tmp_path):
    (tmp_path / "run" / "logs").mkdir(parents=True)
    ranks = Ranks(FAILED, DONE)
    scheduler_of(tmp_path, ranks).close()
    assert ranks.starts == []
    log = (tmp_path / "run" / "logs" / "coordinator.log").read_text()
    assert "worker 0 failed: killed; failed permanently; 3 of its units are left" in log
    assert "worker 1: succeeded at 9/9 rows" in log


def test_a_rank_that_waits_for_its_restart_holds_no_unit(tmp_path):
    ranks = Ranks(BUSY, BUSY)
    scheduler = scheduler_of(tmp_path, ranks)
    ranks.respawn_worker = lambda rank, *_: ranks.statuses.update(
        {rank: waiting(ranks.statuses[rank])}
    )
    step(scheduler, 0)
    ranks.ask(0)
    ranks.change(0, state=WorkerState.FAILED, reason="killed", ended_at=1.0)
    step(scheduler)
    step(scheduler)
    compute(scheduler, rank=1, units=(1, 3, 5, 4, 2, 0))
    step(scheduler, 1)
    assert (ranks.answers, ranks.stopped) == ({0: [0], 1: [1, 3, 5, 4, 2, 0, None]}, [0])


def test_a_question_of_a_rank_that_reports_its_failure_is_answered_with_the_end(tmp_path):
    ranks = Ranks(BUSY, BUSY)
    scheduler = scheduler_of(tmp_path, ranks)
    step(scheduler, 0)
    ranks.change(0, kind="ValueError")
    step(scheduler, 0)
    assert ranks.answers[0] == [0, None]

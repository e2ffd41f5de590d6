"""scripts/bench/simulate.py: invariants of simulated runs, and the program's own rules in them."""

import dataclasses
import importlib
import math
import random
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from virnucpro.compute.claims import (
    _UNIT_TIMES,
    COPY_AFTER_S,
    MOST_COPIES,
    RoundShare,
    claim_copies,
)
from virnucpro.compute.rounds import Round

BENCH = Path(__file__).parents[2] / "scripts" / "bench"


@pytest.fixture(scope="module", autouse=True)
def _importable():
    sys.path.insert(0, str(BENCH))
    yield
    sys.path.remove(str(BENCH))
    for name in [name for name in sys.modules if name.partition(".")[0] == "simulation"]:
        del sys.modules[name]


@pytest.fixture(scope="module")
def run(_importable):
    return importlib.import_module("simulation.run")


@pytest.fixture(scope="module")
def board(_importable):
    return importlib.import_module("simulation.board")


HARD = {
    "ranks": 2,
    "unit_seconds": 600,
    "slow_share": 0.1,
    "mtbf_hours": 8,
    "preempt_hours": 6,
    "limit_hours": 4,
    "queue_seconds": 900,
    "gap_seconds": 30,
}


@pytest.mark.parametrize("policy", ["STATIC", "CLAIMS", "COPIES"])
@pytest.mark.parametrize("requeues", [0, 1, 100])
@pytest.mark.parametrize("tasks", [1, 5, 24])
def test_every_unit_is_done_or_left_and_all_time_is_accounted_for(run, policy, requeues, tasks):
    scenario = run.Scenario(
        tasks=tasks, units=40 * tasks, policy=run.Policy[policy], requeues=requeues, **HARD
    )
    found = run.simulate(scenario)
    assert found.done + found.left == scenario.units
    assert found.left >= 0
    if requeues == 100 and policy != "CLAIMS":  # claims in strides of others are not retaken
        assert found.left == 0
    used = found.useful + found.vain + found.cut + found.start
    assert used <= found.held * (1 + 1e-9)
    assert 0 < found.idle < 1
    assert found.idle <= found.idle_allocation
    assert (found.double == 0) == (found.vain == 0)
    assert found.attempts <= tasks * (1 + requeues)
    if policy == "STATIC":
        assert found.double == 0


@pytest.mark.parametrize("policy", ["STATIC", "CLAIMS", "COPIES"])
def test_a_seed_determines_everything(run, policy):
    scenario = run.Scenario(tasks=8, units=160, policy=run.Policy[policy], **HARD)
    assert run.simulate(scenario) == run.simulate(scenario)
    assert run.simulate(scenario) != run.simulate(dataclasses.replace(scenario, seed=2))


@pytest.mark.parametrize("policy", ["STATIC", "CLAIMS", "COPIES"])
def test_equal_workers_without_failures_are_never_idle(run, policy):
    found = run.simulate(
        run.Scenario(
            tasks=16,
            units=16 * 30,
            unit_seconds=100,
            policy=run.Policy[policy],
            unit_spread=0,
            node_spread=0,
            start_seconds=0,
        )
    )
    assert found.idle_allocation == pytest.approx(0, abs=0.03)  # one look is 60 s
    assert found.end == pytest.approx(3000)
    assert (found.double, found.left, found.attempts) == (0, 0, 16)


@pytest.mark.parametrize("policy", ["STATIC", "CLAIMS", "COPIES"])
def test_one_worker_needs_the_sum_of_its_units(run, policy):
    scenario = run.Scenario(
        tasks=1, units=30, unit_seconds=100, policy=run.Policy[policy], node_spread=0
    )
    found = run.simulate(scenario)
    assert found.end == pytest.approx(scenario.start_seconds + found.useful)
    assert found.held == pytest.approx(found.end)
    assert found.useful == pytest.approx(3000, rel=0.2)


def test_claims_finish_the_units_of_slow_and_late_workers(run):
    scenario = {"tasks": 32, "units": 32 * 30, "unit_seconds": 300, "slow_share": 0.1}
    static, claims, copies = (
        run.simulate(run.Scenario(**scenario, policy=policy, queue_seconds=1800))
        for policy in run.Policy
    )
    assert static.double == claims.double == 0
    assert copies.end <= claims.end < static.end / 1.5


def test_copies_need_no_requeue(run):
    """A quarter of all workers is lost for good, with two claims each."""
    scenario = {"tasks": 64, "units": 64 * 30, "unit_seconds": 900, "mtbf_hours": 24, "requeues": 0}
    static, claims, copies = (
        run.simulate(run.Scenario(**scenario, policy=policy)) for policy in run.Policy
    )
    assert static.left > 5 * claims.left > 0
    assert copies.left == 0
    assert copies.attempts == 64


def test_a_signal_leaves_time_for_open_units(run):
    """Units of 100 s, a limit of 1,000 s: a lead of 100 s suffices, one of 10 s cuts a unit."""
    scenario = {"tasks": 1, "units": 30, "unit_seconds": 100, "unit_spread": 0, "node_spread": 0}
    cut = {
        lead: run.simulate(
            run.Scenario(
                **scenario,
                policy=run.Policy.STATIC,
                start_seconds=50,
                limit_hours=1000 / 3600,
                lead_seconds=lead,
            )
        ).cut
        for lead in (10, 100)
    }
    assert cut[100] == 0
    assert cut[10] == pytest.approx(3 * 50)


def test_figures_are_means_over_seeds(run):
    tables = importlib.import_module("simulation.tables")
    scenario = run.Scenario(tasks=4, units=80, **HARD)
    ends = [
        run.simulate(dataclasses.replace(scenario, seed=1 + seed)).end
        for seed in range(tables.SEEDS)
    ]
    found = tables.means(lambda some: map(run.simulate, some), [scenario], end=lambda one: one.end)
    assert found == [{"end": sum(ends) / len(ends)}]


def test_numbers_on_paper_follow_from_measured_inputs():
    paper = importlib.import_module("simulation.paper")
    found = paper.on_paper(dataclasses.replace(paper.MEASURED, start_calls=10_000, run_calls=100))
    assert "| 512 | 1,024 s; local environment 10.2 s |" in found["Import storm"]
    assert "| 512 | 3.1 TB | 1,536 s | 154 s | 31 s |" in found["Weights"]
    assert "6.7 TB" in found["One billion items"]
    assert "| memory of merge | 11 GB |" in found["One billion items"]


class Story:
    """Claims of several workers, of which some become done while one worker waits."""

    def __init__(self, board, seed):
        dice = random.Random(seed)
        self.board, self.round = board.Board(4), Round(1, tuple(range(24)), 4, "")
        self.board.now = 100_000.0
        others = [board.SimulatedClaims(self.board, task, 0) for task in (1, 2, 3)]
        self.mine = board.SimulatedClaims(self.board, 0, 0)
        self.finishes, self.taken = [], set()
        for unit in dice.sample(range(24), 16):
            for copy in range(dice.choice([1, 1, 1, 2, MOST_COPIES + 1])):
                holder = dice.choice([*others, self.mine] if copy == 0 else others)
                at = 100_000.0 - 1000 * dice.randrange(8)
                self.board.claims[unit].append(board.Claim(holder, at))
                self.board.claimed[unit % 4].add(unit)
            fate = dice.choice(["done", "later", "never", "taken"])
            if fate == "done":
                self.commit(holder, unit)
            elif fate == "later":
                self.finishes.append((100_500.0 + 1000 * dice.randrange(12), holder, unit))
            elif fate == "taken":
                self.taken.add(unit)

    def commit(self, holder, unit):
        self.board.segments.add((holder, unit))
        self.board.done_at.setdefault(unit, self.board.now)

    def advance(self, until):
        """Advance the clock; commit what others finish."""
        self.board.now = until
        for at, holder, unit in self.finishes:
            if at <= until:
                self.commit(holder, unit)

    def compute(self, unit):
        self.commit(self.mine, unit)
        return unit

    def by_the_program(self, unit_seconds):
        share = RoundShare(Path(), "0000.00000000", 0, self.round, (0,))
        found = claim_copies(
            share,
            self.mine,
            self.taken,
            lambda: unit_seconds,
            lambda seconds: self.advance(self.board.now + seconds),
        )
        return [self.compute(unit) for unit in found]

    def by_the_simulation(self, board, unit_seconds):
        watched = sorted({*self.board.claims} - self.taken)
        found = []
        patience = max(COPY_AFTER_S, _UNIT_TIMES * unit_seconds)
        for one in board.copies(self.mine, self.board, watched, patience):
            if isinstance(one, board.Look):
                rest = [at for at, _, unit in self.finishes if unit in one.units]
                ends = max(rest) if len(rest) == len(one.units) else math.inf
                self.advance(min(one.at, max(ends, self.board.now)))
            else:
                found.append(self.compute(one))
        return found


@given(st.integers(0, 10**6), st.sampled_from([1.0, COPY_AFTER_S / 2, 700.0]))
def test_copies_are_those_of_the_program(board, seed, unit_seconds):
    """Claims are made at full thousands of seconds, and finish at halves: no ties with looks."""
    real = Story(board, seed).by_the_program(unit_seconds)
    assert Story(board, seed).by_the_simulation(board, unit_seconds) == real

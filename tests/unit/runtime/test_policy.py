"""Reactions to failed workers: a table, and a simulation of workers that die of items."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from virnucpro.runtime.policy import (
    Action,
    Decision,
    Findings,
    RestartPolicy,
    TaskSpan,
    decide,
    findings,
)
from virnucpro.runtime.status import Fault

A, A1, A2, B = (0, 0, 0, 8), (0, 0, 0, 4), (0, 0, 4, 8), (0, 0, 8, 16)
ONE = (0, 0, 3, 4)
NOTHING = (0, -1, 0, 0)
POLICY = RestartPolicy(max_restarts=3, first_delay=0.5, longest_delay=1.0)


def fault(place=(), *, passed=0, done=0, rank=0, permanent=False, kind=""):
    return Fault(rank, 1, "SIGSEGV", kind, "killed", "", permanent, place, passed, done)


RESTART, NARROW, QUARANTINE, GIVE_UP = Action
POISONED = [fault(A), fault(A), fault(A1, passed=2), fault(ONE, passed=1), fault(ONE)]


@pytest.mark.parametrize(
    ("faults", "expected"),
    [
        pytest.param([fault()], (RESTART, 0.5), id="the first failure"),
        pytest.param([fault()] * 2, (RESTART, 1.0), id="each wait is twice as long"),
        pytest.param([fault()] * 3, (RESTART, 1.0), id="up to the longest"),
        pytest.param([fault()] * 4, (GIVE_UP, 0.0), id="no restart without end"),
        pytest.param([fault(permanent=True)], (GIVE_UP, 0.0), id="it would come again"),
        pytest.param(
            [fault()] * 3 + [fault(done=5)], (RESTART, 0.0), id="rows were done: at once, anew"
        ),
        pytest.param(
            [fault(done=5), fault(), fault(done=5)], (RESTART, 1.0), id="rows done again are none"
        ),
        pytest.param([fault(A)] * 2, (NARROW, 1.0), id="twice in one place"),
        pytest.param([fault(A), fault(B)], (RESTART, 1.0), id="once in each of two places"),
        pytest.param(
            [fault(A), fault(A), fault(A1, passed=2)], (NARROW, 0.0), id="in a half of it"
        ),
        pytest.param(POISONED[:-1], (NARROW, 0.0), id="of one thing, after others"),
        pytest.param(POISONED, (QUARANTINE, 0.0), id="and of that thing at first"),
        pytest.param(
            [*POISONED[:-1], fault(B)], (RESTART, 1.0), id="but not of that thing at first"
        ),
        pytest.param(
            [*POISONED[:-1], fault(B, rank=1), POISONED[-1]],
            (QUARANTINE, 0.0),
            id="what another worker dies of meanwhile acquits nobody",
        ),
        pytest.param(
            [*POISONED[:-1], fault(ONE, rank=1, passed=3), fault(ONE, passed=3)],
            (NARROW, 0.0),
            id="two late deaths are no trial",
        ),
        pytest.param(
            [fault(ONE, passed=1, kind="MemoryError")] * 3,
            (RESTART, 1.0),
            id="want of memory accuses nobody",
        ),
        pytest.param(
            [fault(ONE)] * 3, (RESTART, 1.0), id="of one thing, and never got through another"
        ),
        pytest.param([fault(ONE)] * 4, (GIVE_UP, 0.0), id="which may be a bad device"),
        pytest.param(
            [fault(A), fault(B), fault((0, 0, 16, 24)), fault((0, 0, 24, 32))],
            (GIVE_UP, 0.0),
            id="wherever it begins",
        ),
        pytest.param(
            [fault(NOTHING, passed=9)] * 3, (RESTART, 1.0), id="where nothing can be halved"
        ),
        pytest.param([fault(NOTHING, passed=9)] * 4, (GIVE_UP, 0.0), id="not without end"),
        pytest.param(
            [fault(B, rank=1, passed=1), fault(ONE, rank=1), fault(B, passed=1), fault(ONE)],
            (QUARANTINE, 0.0),
            id="on two devices that work",
        ),
    ],
)
def test_the_decision_for_each_history_of_failures(faults, expected):
    own = [one for one in faults if one.rank == 0]
    decision = decide(own, findings(faults[:-1]), findings(faults), POLICY)
    assert decision == Decision(*expected)


def test_the_longest_delay_is_never_exceeded():
    patient = RestartPolicy(max_restarts=200, first_delay=0.5, longest_delay=30.0)
    delays = [decide([fault()] * n, Findings(), Findings(), patient).delay for n in range(1, 100)]
    assert delays[:7] == [0.5, 1, 2, 4, 8, 16, 30]
    assert set(delays[6:]) == {30.0}


def test_findings_of_one_task_are_its_own():
    found = findings([fault(A), fault((1, 0, 0, 8)), fault((1, 0, 0, 8)), fault(A)])
    assert found.suspects == (TaskSpan(1, 0, 0, 8), TaskSpan(*A))
    assert found.of_task(1).suspects == (TaskSpan(1, 0, 0, 8),)
    assert not found.of_task(2)


def order(n, batch, found):
    """Return the groups of items that a process works on, in order."""
    isolated = {place.first for place, _ in found.isolated}
    batches = [range(start, min(start + batch, n)) for start in range(0, n, batch)]
    suspects = [range(place.first, place.stop) for place in found.suspects]
    seen = [range(place.first, place.stop) for place in found.seen]
    suspected = {thing for place in suspects for thing in place}
    groups = [[thing for thing in one if thing not in suspected] for one in batches]
    groups.sort(key=lambda group: any(set(group) & set(place) for place in seen))
    for place in suspects:
        middle = (len(place) + 1) // 2
        groups += [list(place[:middle]), list(place[middle:])]
    groups = [[thing for thing in group if thing not in isolated] for group in groups]
    return [[place.first] for place, _ in found.trials] + [group for group in groups if group]


def first_death(groups, dies, passed):
    """Run a process until the first group that kills it, or to its end."""
    for number, group in enumerate(groups):
        if dies(number, group):
            return fault((0, 0, group[0], group[-1] + 1), passed=passed + number)
    return None


def to_the_end(n, batch, dies, passed=0):
    """Return all failures until the work is done or the worker fails permanently."""
    faults = []
    while True:
        before = findings(faults)
        died = first_death(order(n, batch, before), dies, 0 if before.trials else passed)
        if died is None:
            return faults, False
        faults.append(died)
        if decide(faults, before, findings(faults), POLICY).action is Action.GIVE_UP:
            return faults, True


@given(st.data(), st.integers(2, 64), st.integers(1, 64))
def test_all_poison_items_are_found_and_no_others(data, n, batch):
    """Only poison items are isolated, each after about log2 n deaths for n items.

    But where it tries something first, the process has got through others before these things.
    """
    poison = data.draw(st.sets(st.integers(0, n - 1), min_size=1, max_size=min(3, n - 1)))
    faults, given_up = to_the_end(n, batch, lambda _, group: bool(poison & set(group)), passed=1)
    isolated = {place.first for place, _ in findings(faults).isolated}
    halvings = math.ceil(math.log2(min(batch, n)))
    if len(poison) == 1:
        assert len(faults) <= 3 + halvings
    assert isolated <= poison
    assert given_up or isolated == poison
    assert not given_up or len(poison) > 1
    # Where several are in one batch, a half that died of one has to be gone into again for another.
    assert len(faults) <= len(poison) * (POLICY.max_restarts + 5 + 2 * max(1, halvings))


@given(st.integers(1, 64), st.integers(1, 64))
def test_a_defective_device_isolates_no_item(n, batch):
    faults, given_up = to_the_end(n, batch, lambda _number, _group: True)
    assert given_up
    assert len(faults) == POLICY.max_restarts + 1
    assert not findings(faults).isolated


@given(st.integers(2, 64), st.integers(1, 64), st.integers(1, 12))
def test_a_device_that_fails_at_times_isolates_no_item(n, batch, period):
    """It dies at an item chosen by position: it fails permanently or finishes."""
    faults, _ = to_the_end(n, batch, lambda number, _: number == period)
    assert not findings(faults).isolated
    assert len(faults) <= POLICY.max_restarts + 5 + 2 * math.ceil(math.log2(max(2, min(n, batch))))

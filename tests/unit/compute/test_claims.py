"""Claims: units are computed by one worker, taken over from lost ones, and never by surprise."""

import os
from itertools import count
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from samples import empty_run

from virnucpro.compute import claims as module
from virnucpro.compute.claims import Claims, RoundShare, claim_copies, claim_units
from virnucpro.compute.rounds import Round, own_strides


@pytest.fixture
def worker(tmp_path):
    """Return a function that makes a worker of an attempt: its share and its claims."""
    run = empty_run(tmp_path)

    def make(part, rank=0, *, units=range(12), strides=4, own=(0,), copy_after=120.0):
        folder = run.part(part)
        if not folder.root.exists():
            folder.machine.mkdir(parents=True)
            folder.index.symlink_to("../../../index")
        one = Round(1, tuple(units), strides, "mini")
        share = RoundShare(run, part, rank, one, tuple(own), copy_after)
        return share, Claims(share)

    return make


def commit(share, unit):
    path = share.run.part(share.part).segment(share.rank, unit)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch()


def links(share):
    """Return the path of each claim by its name; `Path.glob` omits links without a target."""
    return {path.name: path for path in share.run.claims.rglob("*.*") if path.is_symlink()}


def age(share, unit, seconds, copy=0):
    """Make a claim older than it is."""
    path = links(share)[f"{unit:06d}.{copy}"]
    then = path.lstat().st_mtime - seconds
    os.utime(path, (then, then), follow_symlinks=False)


def test_a_worker_computes_its_strides_first_and_those_of_others_from_the_end(worker):
    share, claims = worker("0000.00000000", own=(1, 3))
    taken = list(claim_units(share, claims))
    assert taken[:6] == [1, 5, 9, 3, 7, 11]
    assert sorted(map(tuple, (taken[6:9], taken[9:]))) == [(8, 4, 0), (10, 6, 2)]


def test_two_workers_share_all_units(worker):
    one, other = worker("0000.00000000", own=(0, 1)), worker("0001.00000000", own=(2, 3))
    iterators = [claim_units(*one), claim_units(*other)]
    taken = [[], []]
    for turn in count():
        unit = next(iterators[turn % 2], None)
        if unit is None:
            break
        taken[turn % 2].append(unit)
    assert sorted(taken[0] + taken[1]) == list(range(12))


@given(data=st.data())
def test_in_any_order_each_unit_is_taken_once(data, tmp_path_factory):
    run = empty_run(tmp_path_factory.mktemp("run"))
    tasks, ranks = data.draw(st.integers(1, 4)), data.draw(st.integers(1, 3))
    one = Round(1, tuple(range(data.draw(st.integers(0, 30)))), data.draw(st.integers(1, 9)), "x")
    iterators = []
    for task in range(tasks):
        part = run.part(f"{task:04d}.00000000")
        part.machine.mkdir(parents=True)
        part.index.symlink_to("../../../index")
        for rank in range(ranks):
            strides = tuple(own_strides(one.strides, task, tasks, rank, ranks))
            share = RoundShare(run, part.root.name, rank, one, strides)
            iterators.append(claim_units(share, Claims(share)))
    taken = []
    while iterators:
        chosen = data.draw(st.sampled_from(iterators))
        unit = next(chosen, None)
        if unit is None:
            iterators.remove(chosen)
        else:
            taken.append(unit)
    assert sorted(taken) == list(one.units)


def test_a_claim_of_ones_own_counts_as_won(worker):
    _, claims = worker("0000.00000000")
    assert claims.take(3)
    assert claims.take(3)


def test_a_file_server_that_repeats_a_request_does_no_harm(worker, monkeypatch):
    """A lost reply: the link was made, and its repetition reports that it exists."""
    link = Path.symlink_to

    def repeated(path, target):
        link(path, target)
        link(path, target)

    share, claims = worker("0000.00000000")
    monkeypatch.setattr(Path, "symlink_to", repeated)
    assert list(claim_units(share, claims))[:3] == [0, 4, 8]


def test_a_later_attempt_retakes_unfinished_units_of_an_earlier_one(worker):
    earlier, claims = worker("0000.aaaaaaaa")
    for unit in (0, 4):
        claims.take(unit)
    commit(earlier, 0)
    _, later = worker("0000.bbbbbbbb")
    age(earlier, 4, 1)
    assert [later.take(unit) for unit in (0, 4, 8)] == [False, True, True]
    assert not claims.take(4)


def test_claims_made_after_the_begin_of_an_attempt_are_not_retaken(worker):
    """Two attempts of one task work at the same time: a zombie after a requeue."""
    _, zombie = worker("0000.aaaaaaaa")
    _, later = worker("0000.bbbbbbbb")
    assert zombie.take(4)
    assert not later.take(4)


@pytest.mark.parametrize("other", ["0001.00000000", "0000.00000000"])
def test_claims_of_other_tasks_and_of_other_ranks_are_not_retaken(worker, other):
    share, claims = worker(other, rank=1)
    claims.take(4)
    age(share, 4, 100)
    _, mine = worker("0000.00000000")
    assert not mine.take(4)


def copies(share, claims, taken=(), unit_seconds=0.0, waits=()):
    """Run `claim_copies`; each wait calls the next function of `waits`."""
    steps = iter(waits)
    return claim_copies(share, claims, taken, lambda: unit_seconds, lambda _: next(steps)())


def test_units_of_a_lost_worker_are_copied_once(worker):
    lost, its_claims = worker("0000.00000000")
    for unit in (0, 4):
        its_claims.take(unit)
        age(lost, unit, 500)
    commit(lost, 0)
    first, second = worker("0001.00000000", own=(1,)), worker("0002.00000000", own=(2,))
    assert list(copies(*first)) == [4]
    assert not its_claims.take(4, 1)
    commit(first[0], 4)
    assert list(copies(*second)) == []


def test_young_claims_are_waited_for(worker):
    busy, its_claims = worker("0000.00000000")
    its_claims.take(0)
    its_claims.take(4)
    mine = worker("0001.00000000", own=(1,))
    waits = [lambda: commit(busy, 0), lambda: age(busy, 4, 500)]
    assert list(copies(*mine, waits=waits)) == [4]


def test_a_claim_from_before_the_clock_was_set_back_is_copied(worker):
    busy, its_claims = worker("0000.00000000")
    its_claims.take(0)
    age(busy, 0, -86_400)
    assert list(copies(*worker("0001.00000000", own=(1,)))) == [0]


def test_a_claim_is_copied_as_soon_as_it_is_old_enough(worker):
    """The pauses double up to 60 s, but none is longer than the rest of the wait."""
    busy, its_claims = worker("0000.00000000")
    its_claims.take(0)
    share, claims = worker("0001.00000000", own=(1,))
    waits = []

    def wait(seconds):
        waits.append(seconds)
        age(busy, 0, seconds)

    assert list(claim_copies(share, claims, (), lambda: 0.0, wait)) == [0]
    assert sum(waits) == pytest.approx(module.COPY_AFTER_S, abs=3)
    assert len(waits) < 12


@pytest.mark.parametrize(("unit_seconds", "expected"), [(10, [0]), (400, [])])
def test_slow_units_are_copied_later(worker, unit_seconds, expected):
    busy, its_claims = worker("0000.00000000")
    its_claims.take(0)
    age(busy, 0, 500)
    mine = worker("0001.00000000", own=(1,))
    waits = [lambda: commit(busy, 0)]
    assert list(copies(*mine, unit_seconds=unit_seconds, waits=waits)) == expected


def test_a_restarted_worker_computes_what_it_had_claimed(worker):
    share, claims = worker("0000.00000000")
    for unit in (0, 4, 8):
        claims.take(unit)
    commit(share, 0)
    assert list(copies(share, claims, taken={4})) == [8]


def test_a_unit_has_a_limited_number_of_copies(worker):
    """A unit that kills every worker must not occupy all of them in turn."""
    killed = []
    for task in range(9):
        share, claims = worker(f"{task:04d}.00000000", own=(task % 4,))
        found = [0] if task == 0 and claims.take(0) else list(copies(share, claims))
        for copy in range(len(killed) + 1):
            if f"000000.{copy}" in links(share):
                age(share, 0, 500, copy)
        killed += found
    assert killed == [0] * (1 + module.MOST_COPIES)


def test_foreign_files_in_the_folder_of_claims_are_ignored(worker):
    share, claims = worker("0000.00000000")
    claims.take(0)
    folder = share.run.claims / "0001" / "0000"
    (folder / ".nfs0001").touch()
    (folder / "000004.0").touch()  # no link
    (folder / "9abc").touch()
    assert claims.take(4)
    assert set(claims.claimed(0)) == {0, 4}
    assert claims.unfinished(4) is None

"""Who gets which unit: the own ones, then those of others; no unit is lost or doubled."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from virnucpro.compute.unit_queue import UnitQueue
from virnucpro.sequences.partition import deal


def queue_of(*shares):
    return UnitQueue(dict(enumerate(shares)))


def taken(queue, rank, silent=(), most=99):
    """Let a rank take and commit units until there is none; return them."""
    units = []
    while len(units) < most and (unit := queue.take(rank, silent)) is not None:
        units.append(unit)
        queue.commit(rank, unit)
    return units


def test_a_rank_takes_its_own_units_then_those_of_the_longest_stride_from_its_end():
    queue = queue_of([0, 3, 6], [1, 4, 7, 9], [2, 5])
    assert taken(queue, 2) == [2, 5, 9, 6, 7, 3, 4, 0, 1]
    assert queue.is_over


def test_a_rank_takes_one_unit_in_advance_unless_few_are_open():
    queue = queue_of([0, 2, 4], [1])
    assert [queue.take(0), queue.take(0), queue.take(0)] == [0, 2, 4]
    assert queue.take(1) == 1
    assert queue.take(1) is None
    queue = queue_of([0, 2], [1])
    assert [queue.take(1), queue.take(0), queue.take(0)] == [1, 0, None]
    queue.commit(0, 0)
    assert queue.take(0) == 2


def test_units_of_a_dead_rank_are_its_own_with_suspects_last():
    queue = queue_of([0, 2, 4, 6], [1, 3])
    assert [queue.take(0), queue.take(0)] == [0, 2]
    assert taken(queue, 1) == [1, 3, 6, 4]
    queue.suspects = {0}
    queue.put_back(0, failed=False)
    assert queue.left(0) == [2, 0]
    assert taken(queue, 1) == [2]  # not the suspect
    assert not queue.is_over
    queue.put_back(0, failed=True)
    assert taken(queue, 1) == [0]
    assert queue.is_over


def test_a_unit_that_another_rank_took_stays_with_it_when_it_dies():
    queue = queue_of([0, 2], [1])
    assert taken(queue, 1) == [1, 2, 0]
    queue = queue_of([0, 2], [1])
    taken(queue, 1, most=1)
    assert (queue.take(1), queue.owner(2)) == (2, 0)
    queue.suspects = {2}
    queue.put_back(1, failed=False)
    assert (queue.left(0), queue.left(1)) == ([0], [2])
    assert taken(queue, 0) == [0]  # the suspect is for rank 1 alone
    assert taken(queue, 1) == [2]


def test_units_of_a_silent_rank_are_copied_once():
    queue = queue_of([0, 3, 6], [1, 4], [2, 5])
    queue.suspects = {6}
    assert [queue.take(0), queue.take(0)] == [0, 3]
    assert taken(queue, 1) == [1, 4, 5, 2]
    assert [queue.take(1, [0]), queue.take(2, [0]), queue.take(2, [0])] == [6, 0, None]
    queue.commit(2, 0)
    assert [queue.take(2, [0]), queue.take(2, [0])] == [3, None]
    queue.commit(1, 6)
    assert queue.take(1, [0]) is None
    queue.put_back(0, failed=False)  # rank 2 still computes unit 3
    assert queue.left(0) == []
    queue.put_back(2, failed=True)
    assert taken(queue, 1) == [3]
    assert queue.is_over


class Ranks:
    """Ranks that take, commit and die, and what must hold after each event.

    `excused` are the units that may be computed more than once: a rank that held it died, or was
    silent.
    """

    def __init__(self, n_units, n_ranks):
        n_ranks = min(n_ranks, n_units)
        shares = {rank: deal(range(n_units), rank, n_ranks) for rank in range(n_ranks)}
        self.queue = UnitQueue(shares)
        self.held = {rank: [] for rank in shares}
        self.computed, self.excused, self.suspects = Counter(), set(), set()

    def take(self, rank, silent=()):
        copied = {unit for other in silent for unit in self.held[other]}
        unit = self.queue.take(rank, silent)
        if unit is not None:
            assert unit not in self.held[rank]
            assert unit in copied or all(unit not in units for units in self.held.values())
            self.excused |= {unit} & copied
            self.held[rank].append(unit)

    def take_with_silent_others(self, rank):
        self.take(rank, self.held.keys() - {rank})

    def commit(self, rank):
        if self.held[rank]:
            unit = self.held[rank].pop(0)
            self.computed[unit] += 1
            self.queue.commit(rank, unit)

    def die(self, rank, *, failed=False):
        self.excused |= {*self.held[rank]}
        self.suspects |= {*self.held[rank][:1]}
        self.held[rank] = []
        self.queue.suspects = self.suspects
        self.queue.put_back(rank, failed=failed)

    def fail(self, rank):
        if len(self.held) > 1:
            self.die(rank, failed=True)
            del self.held[rank]


EVENTS = (Ranks.take, Ranks.take_with_silent_others, Ranks.commit, Ranks.die, Ranks.fail)


@given(st.integers(1, 40), st.integers(1, 5), st.data())
def test_every_unit_is_computed_and_none_twice_without_a_reason(n_units, n_ranks, data):
    ranks = Ranks(n_units, n_ranks)
    events = st.tuples(st.sampled_from(EVENTS), st.sampled_from([*ranks.held]))
    for event, rank in data.draw(st.lists(events, max_size=80)):
        if rank in ranks.held:
            event(ranks, rank)
    while not ranks.queue.is_over:
        before = ranks.computed.total()
        for rank in ranks.held:
            ranks.take(rank)
            ranks.commit(rank)
        assert ranks.computed.total() > before, "units are left, and no rank gets one"
    assert {*ranks.computed} == {*range(n_units)}
    assert {unit for unit, times in ranks.computed.items() if times > 1} <= ranks.excused

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from virnucpro.encoders.batching import batches
from virnucpro.errors import UsageError

LENGTHS = st.lists(st.integers(1, 400), max_size=200)
BUDGETS = st.integers(1, 2_000)


@given(LENGTHS, BUDGETS)
def test_every_position_is_in_exactly_one_batch(lengths, budget):
    groups = batches(lengths, budget)
    assert sorted(np.concatenate([*groups, []]).tolist()) == list(range(len(lengths)))


@given(LENGTHS, BUDGETS)
def test_a_padded_batch_stays_within_the_budget_unless_it_is_one_sequence(lengths, budget):
    for group in batches(lengths, budget):
        padded = max(lengths[position] for position in group) * len(group)
        assert padded <= budget or len(group) == 1


@given(LENGTHS, BUDGETS)
def test_batches_run_from_long_to_short_and_ties_keep_their_order(lengths, budget):
    order = [int(position) for group in batches(lengths, budget) for position in group]
    assert order == sorted(range(len(lengths)), key=lambda position: -lengths[position])


@given(LENGTHS, BUDGETS)
def test_no_batch_could_have_taken_the_first_of_the_next(lengths, budget):
    groups = batches(lengths, budget)
    for group, following in pairwise(groups):
        assert len(following) > 0
        assert lengths[group[0]] * (len(group) + 1) > budget


def test_positions_are_int64_of_any_integer_lengths():
    groups = batches(np.array([3, 9, 4], dtype=np.int32), 9)
    assert [group.tolist() for group in groups] == [[1], [2, 0]]
    assert {group.dtype for group in groups} == {np.dtype(np.int64)}


def test_nothing_makes_no_batch():
    assert batches([], 100) == []


@pytest.mark.parametrize("budget", [0, -1])
def test_a_budget_below_one_is_refused(budget):
    with pytest.raises(UsageError, match="at least 1"):
        batches([1], budget)

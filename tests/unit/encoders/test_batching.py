from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from virnucpro.encoders.batching import batches, longest_first
from virnucpro.errors import UsageError

LENGTHS = st.lists(st.integers(1, 400), max_size=200)
BUDGETS = st.integers(1, 2_000)


def laid_out(lengths, budget):
    """Positions in `lengths`, one list a batch."""
    order = longest_first(lengths)
    sizes = np.asarray(lengths, dtype=np.int64)[order]
    return [order[list(batch)].tolist() for batch in batches(sizes, lambda _longest: budget)]


@given(LENGTHS, BUDGETS)
def test_every_position_is_in_exactly_one_batch(lengths, budget):
    taken = [position for group in laid_out(lengths, budget) for position in group]
    assert sorted(taken) == list(range(len(lengths)))


@given(LENGTHS, BUDGETS)
def test_a_padded_batch_stays_within_the_budget_unless_it_is_one_sequence(lengths, budget):
    for group in laid_out(lengths, budget):
        padded = max(lengths[position] for position in group) * len(group)
        assert padded <= budget or len(group) == 1


@given(LENGTHS, BUDGETS)
def test_batches_run_from_long_to_short_and_ties_keep_their_order(lengths, budget):
    order = [int(position) for group in laid_out(lengths, budget) for position in group]
    assert order == sorted(range(len(lengths)), key=lambda position: -lengths[position])


@given(LENGTHS, BUDGETS)
def test_no_batch_could_have_taken_the_first_of_the_next(lengths, budget):
    groups = laid_out(lengths, budget)
    for group, following in pairwise(groups):
        assert len(following) > 0
        assert lengths[group[0]] * (len(group) + 1) > budget


def test_the_order_is_int64_of_any_integer_lengths():
    order = longest_first(np.array([3, 9, 4], dtype=np.int32))
    assert (order.tolist(), order.dtype) == ([1, 2, 0], np.dtype(np.int64))
    assert laid_out([3, 9, 4], 9) == [[1], [2, 0]]


def test_nothing_makes_no_batch():
    assert laid_out([], 100) == []


def test_the_budget_is_asked_for_by_the_longest_once_the_batches_before_are_done():
    asked = []

    def budget(longest):
        asked.append(longest)
        return 8

    laid = batches([4, 4, 2, 1], budget)
    assert (next(laid), asked) == (range(2), [4])
    assert (next(laid), asked) == (range(2, 4), [4, 2])


@pytest.mark.parametrize("budget", [0, -1])
def test_a_budget_below_one_is_refused(budget):
    with pytest.raises(UsageError, match="at least 1"):
        laid_out([1], budget)

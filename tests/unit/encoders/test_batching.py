import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from virnucpro.encoders.batching import Filling, batches, batches_by_length, longest_first
from virnucpro.errors import UsageError

LENGTHS = st.lists(st.integers(1, 400), max_size=200)
BUDGETS = st.integers(1, 2_000)


def laid_out(lengths, budget):
    """Return positions in `lengths`, one list per batch."""
    return [positions.tolist() for positions in batches_by_length(lengths, budget)]


@given(LENGTHS, BUDGETS)
def test_a_batch_stays_within_the_budget_unless_it_is_one_sequence(lengths, budget):
    for group in laid_out(lengths, budget):
        assert sum(lengths[position] for position in group) <= budget or len(group) == 1


@given(LENGTHS, BUDGETS)
def test_each_position_is_in_one_batch_longest_first_for_any_budget(lengths, budget):
    order = [int(position) for group in laid_out(lengths, budget) for position in group]
    assert order == sorted(range(len(lengths)), key=lambda position: -lengths[position])


def filled_up(lengths, budget):
    """Return the tokens of each batch if batches are filled greedily, which gives the fewest."""
    sums = []
    for length in sorted(lengths, reverse=True):
        if sums and sums[-1] + length <= budget:
            sums[-1] += length
        else:
            sums.append(length)
    return sums


@given(LENGTHS, BUDGETS)
def test_the_number_of_batches_is_minimal(lengths, budget):
    assert len(laid_out(lengths, budget)) == len(filled_up(lengths, budget))


@given(LENGTHS.filter(bool), BUDGETS)
@example([168] * 789, 65_536)
@example([10] * 9, 49)
def test_the_largest_batch_is_as_small_as_possible(lengths, budget):
    sums = [sum(lengths[position] for position in group) for group in laid_out(lengths, budget)]
    if max(sums) > max(lengths):
        assert len(filled_up(lengths, max(sums) - 1)) > len(sums)


def test_a_changed_budget_applies_to_later_batches():
    budgets = iter([60, 60, 30, 30, 100, 100])
    cut = [len(batch) for batch in batches([10] * 20, lambda _longest: next(budgets))]
    assert cut == [5, 5, 3, 3, 4]


def test_the_order_is_int64_for_any_integer_type():
    order = longest_first(np.array([3, 9, 4], dtype=np.int32))
    assert (order.tolist(), order.dtype) == ([1, 2, 0], np.dtype(np.int64))
    assert laid_out([3, 9, 4], 9) == [[1], [2, 0]]


def test_the_budget_is_requested_for_each_batch_by_its_longest_row():
    asked = []

    def budget(longest):
        asked.append(longest)
        return 8

    laid = batches([4, 4, 2, 2, 2, 2], budget)
    assert (next(laid), asked) == (range(2), [4])
    assert (next(laid), asked) == (range(2, 6), [4, 2])


@pytest.mark.parametrize("budget", [0, -1])
def test_a_budget_below_one_is_refused(budget):
    with pytest.raises(UsageError, match="at least 1"):
        laid_out([1], budget)


@given(LENGTHS.filter(bool), BUDGETS)
def test_unused_is_the_share_of_the_budgets_without_tokens(lengths, budget):
    filling = Filling()
    for group in laid_out(lengths, budget):
        filling = filling.after(sum(lengths[position] for position in group), budget)
    assert filling.tokens == sum(lengths)
    assert filling.room >= filling.tokens
    assert filling.unused == pytest.approx((filling.room - filling.tokens) / filling.room)
    assert filling + filling == Filling(2 * filling.batches, 2 * filling.tokens, 2 * filling.room)


@given(st.integers(0, 1 << 32))
def test_large_budgets_are_mostly_used(seed):
    lengths = np.random.default_rng(seed).integers(20, 169, 600).tolist()
    sums = [sum(lengths[p] for p in group) for group in laid_out(lengths, 2048)]
    assert len(sums) * (2048 - 168) < sum(lengths)
    assert max(sums) - min(sums[:-1]) < 168


def test_without_batches_nothing_is_unused():
    assert Filling().unused == 0
    assert Filling().after(300, 200).unused == 0

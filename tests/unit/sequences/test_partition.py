from itertools import pairwise

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from virnucpro.sequences.partition import deal, unit_bounds

row_lengths = st.lists(st.integers(0, 300), max_size=200).map(lambda v: np.array(v, dtype=np.int32))


@given(row_lengths, st.integers(1, 50), st.integers(1, 1000))
@example(np.empty(0, np.int32), 3, 800)
def test_units_cover_every_row_once_within_the_limits(lengths, max_rows, max_positions):
    bounds = unit_bounds(lengths, max_rows, max_positions)
    assert bounds.dtype == np.int64
    assert bounds[0] == 0
    assert bounds[-1] == len(lengths)
    for start, end in pairwise(bounds):
        assert start < end
        assert end - start <= max_rows
        assert end - start == 1 or lengths[start:end].sum() <= max_positions


@given(row_lengths, st.integers(1, 50), st.integers(1, 1000))
@example(np.array([900, 400, 400, 200, 100, 0, 0]), 3, 800)
def test_units_are_as_large_as_the_limits_allow(lengths, max_rows, max_positions):
    bounds = unit_bounds(lengths, max_rows, max_positions)
    for start, end in pairwise(bounds[:-1]):
        full = end - start == max_rows
        assert full or lengths[start : end + 1].sum(dtype=np.int64) > max_positions


def test_positions_beyond_32_bits_do_not_overflow():
    lengths = np.full(3, 2**31 - 1, dtype=np.int32)
    assert unit_bounds(lengths, 10, 2**40).tolist() == [0, 3]


@given(st.lists(st.integers(0, 10_000), unique=True), st.integers(1, 40))
def test_ranks_share_a_plan_completely_and_equally(plan, world_size):
    shares = [deal(plan, rank, world_size) for rank in range(world_size)]
    assert sorted(unit for share in shares for unit in share) == sorted(plan)
    assert max(map(len, shares)) - min(map(len, shares)) <= 1
    for rank, share in enumerate(shares):
        assert list(share) == [unit for i, unit in enumerate(plan) if i % world_size == rank]


@pytest.mark.parametrize(("rank", "world_size"), [(-1, 2), (2, 2), (0, 0), (0, -1)])
def test_ranks_out_of_range_are_rejected(rank, world_size):
    with pytest.raises(ValueError, match="rank"):
        deal([1, 2, 3], rank, world_size)

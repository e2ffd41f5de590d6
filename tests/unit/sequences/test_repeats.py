import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from virnucpro.sequences import builder
from virnucpro.sequences.builder import count_repeats

hashes = st.lists(st.integers(-4, 4) | st.integers(-(2**63), 2**63 - 1), max_size=40)


@given(hashes, st.integers(1, 50))
def test_repeats_are_counted_whatever_fits_into_memory(values, at_once):
    again = [place for place, value in enumerate(values) if value in values[:place]]
    twice = [place for place, value in enumerate(values) if values.count(value) > 1]
    found = count_repeats(np.array(values, np.int64), at_once)
    assert found == (len(again), twice[0] if twice else -1)


@pytest.mark.parametrize("at_once", [3, 1000])
def test_values_are_read_in_blocks(at_once, monkeypatch):
    monkeypatch.setattr(builder, "_BLOCK", 4)
    values = np.array([*range(11), 9, 10, 10], np.int64)
    assert count_repeats(values, at_once) == (3, 9)

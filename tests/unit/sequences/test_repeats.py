import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from virnucpro.sequences import builder
from virnucpro.sequences.builder import repeated_values

hashes = st.lists(st.integers(-4, 4) | st.integers(-(2**63), 2**63 - 1), max_size=40)


def found_in(values, at_once):
    parts = [*repeated_values(values, at_once)]
    return sum(n for n, _ in parts), sorted(np.concatenate([own for _, own in parts]).tolist())


@given(hashes, st.integers(1, 50))
def test_repeats_are_counted_whatever_fits_into_memory(values, at_once):
    again = [place for place, value in enumerate(values) if value in values[:place]]
    twice = [place for place, value in enumerate(values) if values.count(value) > 1]
    assert found_in(np.array(values, np.int64), at_once) == (len(again), twice)


@pytest.mark.parametrize("at_once", [3, 1000])
def test_values_are_read_in_blocks(at_once, monkeypatch):
    monkeypatch.setattr(builder, "_BLOCK", 4)
    values = np.array([*range(11), 9, 10, 10], np.int64)
    assert found_in(values, at_once) == (3, [9, 10, 11, 12, 13])

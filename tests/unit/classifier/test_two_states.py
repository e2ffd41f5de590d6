from itertools import pairwise, product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from virnucpro.classifier.regions import Costs, viral_windows

evidence_lists = st.lists(st.lists(st.integers(-6, 6), max_size=8), max_size=5)
costs = st.builds(Costs, st.integers(0, 8), st.integers(0, 8), st.integers(-4, 4))


def joined(records):
    first = np.cumsum([0, *map(len, records)])
    return np.array([one for record in records for one in record], np.int64), first


def total(evidence, path, cost):
    """Sum of a path by its definition."""
    enters = sum(b > a for a, b in pairwise(path))
    leaves = sum(b < a for a, b in pairwise(path))
    start = cost.start if path and path[0] else 0
    found = sum(one for one, viral in zip(evidence, path, strict=True) if viral)
    return start + found - cost.enter * enters - cost.leave * leaves


@given(evidence_lists, costs)
def test_no_path_of_a_record_has_a_larger_sum(records, cost):
    evidence, first = joined(records)
    viral = viral_windows(evidence, first, cost)
    for record, (low, high) in zip(records, pairwise(first), strict=True):
        best = max(total(record, path, cost) for path in product((False, True), repeat=len(record)))
        assert total(record, viral[low:high].tolist(), cost) == best


@given(st.lists(st.lists(st.integers(-3000, 3000), max_size=400), max_size=4))
def test_a_record_does_not_depend_on_its_neighbours(records):
    cost = Costs(enter=5000, leave=6000, start=-3000)
    evidence, first = joined(records)
    viral = viral_windows(evidence, first, cost)
    for record, (low, high) in zip(records, pairwise(first), strict=True):
        alone = viral_windows(*joined([record]), cost)
        assert viral[low:high].tolist() == alone.tolist()


@given(st.lists(st.integers(-3000, 3000), min_size=1, max_size=400))
def test_long_records_equal_the_loop_over_windows(record):
    cost = Costs(enter=5000, leave=6000, start=-3000)
    lead, leads = cost.start, []
    for number, one in enumerate(record):
        lead = one + (lead if not number else min(max(lead, -cost.enter), cost.leave))
        leads.append(lead)
    state = leads[-1] > 0
    expected = [state]
    for lead in reversed(leads[:-1]):
        state = lead > cost.leave or (lead >= -cost.enter and state)
        expected.append(state)
    assert viral_windows(*joined([record]), cost).tolist() == expected[::-1]


@pytest.mark.parametrize("gap", [0, 1, 3])
def test_windows_without_evidence_belong_to_the_next_stretch(gap):
    evidence = [-9, -9, *[0] * gap, *[9] * 5, *[0] * gap, -9, -9]
    viral = viral_windows(*joined([evidence]), Costs(10, 10, 0))
    assert np.flatnonzero(viral).tolist() == list(range(2, 7 + gap))

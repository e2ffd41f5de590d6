import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from virnucpro.store import row_items
from virnucpro.store.row_items import RowItems


@given(
    item_row=st.lists(st.integers(0, 60), max_size=80),
    first=st.integers(0, 90),
    n_rows=st.integers(1, 90),
    bits=st.integers(1, 8),
    at_once=st.integers(1, 40),
)
def test_each_item_of_the_rows_is_found_once(item_row, first, n_rows, bits, at_once):
    rows = np.arange(first, first + n_rows)
    item_row = np.array(item_row, np.int64)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(row_items, "_BUCKET_BITS", bits)
        patch.setattr(row_items, "_ITEMS_AT_ONCE", at_once)
        with RowItems(item_row) as found:
            groups = list(found.of(rows))
    for items, positions in groups:
        assert (np.diff(items) > 0).all()
        assert 0 < len(items) <= at_once
        np.testing.assert_array_equal(rows[positions], item_row[items])
    every = sorted(item for items, _ in groups for item in items.tolist())
    assert every == np.flatnonzero(np.isin(item_row, rows)).tolist()


def test_items_of_one_row_are_yielded_in_groups(monkeypatch):
    monkeypatch.setattr(row_items, "_ITEMS_AT_ONCE", 10)
    with RowItems(np.zeros(95, np.int64)) as found:
        sizes = [len(items) for items, _ in found.of(np.array([0]))]
    assert (sum(sizes), max(sizes)) == (95, 10)

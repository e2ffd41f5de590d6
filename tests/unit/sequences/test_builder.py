import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from virnucpro.sequences.builder import distinct_rows

# Identical items have equal lengths, so the length is part of the digest.
items = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3), st.integers(1, 4)), max_size=60)


@given(items)
def test_rows_are_sorted_by_length_then_by_first_appearance(items):
    digests = np.array([(a, 8 * b + n) for a, b, n in items], np.uint64).reshape(-1, 2)
    lengths = np.array([n for _, _, n in items], np.int32)
    item_row, first_item = distinct_rows(digests, lengths)
    order = sorted(dict.fromkeys(items), key=lambda item: -item[2])
    assert [items[i] for i in first_item] == order
    assert first_item.tolist() == [items.index(item) for item in order]
    assert item_row.tolist() == [order.index(item) for item in items]
    assert item_row.dtype == first_item.dtype == np.int64


def test_both_halves_of_a_digest_are_compared():
    digests = np.array([[1, 2], [2, 1], [1, 1], [1, 2]], np.uint64)
    item_row, _ = distinct_rows(digests, np.ones(4, np.int32))
    assert item_row.tolist() == [0, 1, 2, 0]

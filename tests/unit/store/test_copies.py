"""Two segments of one unit."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from virnucpro.store.coverage import ROUNDING, difference
from virnucpro.store.schema import RowState


def scaled(values, row, factor):
    changed = values.copy()
    changed[row] *= factor
    return changed


@pytest.mark.parametrize("dtype", ["f2", "f4"])
def test_copies_that_differ_by_rounding_are_equal(make_segment, dtype):
    one = make_segment(first=300, last=900, dtype=dtype, quarantined=[302])
    other = replace(
        one,
        embeddings=scaled(one.embeddings, slice(None), 1 + ROUNDING / 2),
        scores=one.scores * np.float32(1 - ROUNDING / 2),
        reasons={302: "in other words"},
    )
    assert difference(one, other) == ""


@pytest.mark.parametrize(
    ("change", "described"),
    [
        (lambda one: {"rows": one.rows + 1}, "different rows"),
        (
            lambda one: {"state": np.where(one.rows == 8, RowState.QUARANTINED, 0).astype("u1")},
            "different states of row 8",
        ),
        (
            lambda one: {"embeddings": scaled(one.embeddings, 299, 1 + 2 * ROUNDING)},
            "different embeddings of 1 rows, first row 304",
        ),
        (lambda one: {"scores": one.scores[:, ::-1]}, "different scores of"),
        (lambda one: {"embeddings": one.embeddings[:, :7]}, "embeddings of different shapes"),
        (lambda one: {"embeddings": one.embeddings.astype("f2")}, "embeddings of different shapes"),
        (lambda _: {"embeddings": None}, "embeddings of different shapes"),
        (lambda _: {"scores": None}, "scores of different shapes"),
    ],
)
def test_a_larger_difference_is_described(make_segment, change, described):
    one = make_segment(first=5, last=400)
    other = replace(one, **change(one))
    assert described in difference(one, other)
    assert described in difference(other, one)


@given(row=st.integers(0, 4), other_row=st.integers(0, 4))
def test_swapped_vectors_of_any_two_rows_are_a_difference(make_segment, row, other_row):
    one = make_segment(dtype="f4", dim=8)
    vectors = one.embeddings.copy()
    vectors[[row, other_row]] = vectors[[other_row, row]]
    assert bool(difference(one, replace(one, embeddings=vectors))) == (row != other_row)


def test_vectors_of_zeros_are_equal(make_segment):
    one = make_segment()
    one = replace(one, embeddings=np.zeros_like(one.embeddings))
    assert difference(one, one) == ""

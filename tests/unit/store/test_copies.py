"""Two segments of one unit."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from virnucpro.store.copies import ROUNDING, difference
from virnucpro.store.schema import RowState


def scaled(values, row, factor):
    changed = values.copy()
    changed[row] *= factor
    return changed


@pytest.mark.parametrize("dtype", ["f2", "f4"])
def test_what_differs_by_rounding_says_the_same(make_segment, dtype):
    one = make_segment(first=300, last=900, dtype=dtype, quarantined=[302])
    other = replace(
        one,
        embeddings=scaled(one.embeddings, slice(None), 1 + ROUNDING / 2),
        scores=one.scores * np.float32(1 - ROUNDING / 2),
        reasons={302: "in other words"},
    )
    assert difference(one, other) == ""


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda one: {"rows": one.rows + 1}, "other rows"),
        (
            lambda one: {"state": np.where(one.rows == 8, RowState.QUARANTINED, 0).astype("u1")},
            "another state of row 8",
        ),
        (
            lambda one: {"embeddings": scaled(one.embeddings, 299, 1 + 2 * ROUNDING)},
            "other embeddings of 1 rows, the first of them 304",
        ),
        (lambda one: {"scores": one.scores[:, ::-1]}, "other scores of"),
        (lambda one: {"embeddings": one.embeddings[:, :7]}, "embeddings of another shape"),
        (lambda one: {"embeddings": one.embeddings.astype("f2")}, "embeddings of another shape"),
        (lambda _: {"embeddings": None}, "embeddings of another shape"),
        (lambda _: {"scores": None}, "scores of another shape"),
    ],
)
def test_what_differs_by_more_is_told(make_segment, change, told):
    one = make_segment(first=5, last=400)
    other = replace(one, **change(one))
    assert told in difference(one, other)
    assert told in difference(other, one)


@given(row=st.integers(0, 4), other_row=st.integers(0, 4))
def test_vectors_of_two_rows_are_told_apart_wherever_they_stand(make_segment, row, other_row):
    one = make_segment(dtype="f4", dim=8)
    vectors = one.embeddings.copy()
    vectors[[row, other_row]] = vectors[[other_row, row]]
    assert bool(difference(one, replace(one, embeddings=vectors))) == (row != other_row)


def test_vectors_of_zeros_are_equal(make_segment):
    one = make_segment()
    one = replace(one, embeddings=np.zeros_like(one.embeddings))
    assert difference(one, one) == ""

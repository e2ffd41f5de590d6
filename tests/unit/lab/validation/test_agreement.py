import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from virnucpro.lab.validation.parity import compare_scores, compare_vectors

VECTORS = arrays(np.float32, (5, 8), elements=st.floats(-4, 4, width=32))
SHARES = arrays(np.float32, (12,), elements=st.floats(0, 1, width=32))


def scores_of(shares):
    shares = np.asarray(shares, np.float32)
    return np.stack([1 - shares, shares], axis=1)


@given(VECTORS)
def test_equal_vectors_agree(values):
    same = compare_vectors("x", values, values.copy(), "fp32")
    assert same.agrees
    assert same.largest_error == 0
    assert (same.least_cosine > 0.999) == bool(values.any(1).all())


@pytest.mark.parametrize(
    ("precision", "error", "agrees"),
    [
        ("fp32", 0.9e-5, True),
        ("fp32", 1.2e-5, False),
        ("fp16", 1.2e-2, True),
        ("fp16", 1.8e-2, False),
        ("bf16", 4e-2, True),
        ("bf16", 6e-2, False),
    ],
)
def test_each_precision_has_a_tolerance_of_vectors(precision, error, agrees):
    wanted = np.zeros((2, 4), np.float32)
    wanted[:, 0] = 2
    found = wanted.copy()
    found[1, int(precision != "fp32")] += 2 * error
    compared = compare_vectors("x", found, wanted, precision)
    assert compared.agrees == agrees
    assert compared.largest_error == pytest.approx(2 * error, rel=0.01)


def test_one_bad_vector_among_many_is_found():
    wanted = np.random.default_rng(1).normal(size=(100, 16)).astype(np.float32)
    found = wanted.copy()
    found[37] = wanted[38]
    compared = compare_vectors("x", found, wanted, "bf16")
    assert not compared.agrees
    assert compared.least_cosine < 0.9


def test_vectors_that_are_not_finite_are_counted_and_do_not_agree():
    wanted = np.ones((3, 4), np.float32)
    found = wanted.copy()
    found[0, 1], found[2, 2] = np.nan, np.inf
    compared = compare_vectors("x", found, wanted, "fp16")
    assert (compared.not_finite, compared.agrees, compared.largest_error) == (2, False, 0)
    nothing = compare_vectors("x", np.full((3, 4), np.nan, np.float32), wanted, "fp16")
    assert (nothing.not_finite, nothing.agrees, nothing.least_cosine) == (3, False, 0)


@given(SHARES)
def test_equal_scores_agree(shares):
    same = compare_scores(scores_of(shares), scores_of(shares), "fp32")
    assert (same.largest_error, same.agrees) == (0, True)


@pytest.mark.parametrize(
    ("precision", "error", "agrees"),
    [
        ("fp32", 0.9e-4, True),
        ("fp32", 1.2e-4, False),
        ("fp16", 0.009, True),
        ("fp16", 0.012, False),
        ("bf16", 0.045, True),
        ("bf16", 0.055, False),
    ],
)
def test_each_precision_has_a_tolerance_of_scores(precision, error, agrees):
    wanted = scores_of(np.full(4, 0.8))
    found = scores_of([0.8, 0.8, 0.8, 0.8 + error])
    assert compare_scores(found, wanted, precision).agrees == agrees


@pytest.mark.parametrize("precision", ["fp32", "fp16", "bf16"])
def test_a_large_channel_hides_no_error(precision):
    wanted = np.random.default_rng(0).standard_normal((64, 320)).astype(np.float32)
    wanted[:, 0] = 2000 + 20 * wanted[:, 0]
    found = wanted.copy()
    if precision == "fp32":
        found[:, 1:] += 0.015
    else:
        found[3, 1:] = -wanted[3, 1:]
    compared = compare_vectors("x", found, wanted, precision)
    assert compared.least_cosine > 0.9998
    assert compared.largest_error < 1e-5 * np.abs(wanted).max() or precision != "fp32"
    assert not compared.agrees


@pytest.mark.parametrize("precision", ["fp16", "bf16"])
def test_rounding_of_nearly_equal_vectors_is_tolerated(precision):
    kind = {"fp16": np.float16, "bf16": None}[precision]
    dice = np.random.default_rng(1)
    wanted = (1 + 1e-4 * dice.standard_normal((9, 64))).astype(np.float32)
    rounded = (
        wanted.astype(kind).astype(np.float32)
        if kind
        else (wanted.view(np.uint32) & 0xFFFF0000).view(np.float32)
    )
    assert compare_vectors("x", rounded, wanted, precision).agrees


def test_scores_that_are_not_finite_do_not_agree():
    wanted = scores_of([0.2, 0.7])
    found = wanted.copy()
    found[0] = np.nan
    assert not compare_scores(found, wanted, "bf16").agrees

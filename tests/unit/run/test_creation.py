"""Size of the units of a run."""

import math

import pytest

from virnucpro.run.creation import unit_caps


@pytest.mark.parametrize("fast", [False, True])
@pytest.mark.parametrize("n_rows", [0, 1, 40, 2_048, 10_000])
def test_a_small_run_has_small_units_on_each_kind_of_device(n_rows, fast):
    assert unit_caps(n_rows, fast=fast)["rows"] == max(32, math.ceil(n_rows / 64))


def test_units_of_a_gpu_hold_more_batches():
    large = 100_000_000
    assert unit_caps(large) == {"rows": 2_048, "positions": 131_072}
    assert unit_caps(large, fast=True) == {"rows": 8_192, "positions": 1_048_576}


def test_each_worker_of_a_planned_run_has_64_units_of_256_rows_or_more():
    assert unit_caps(512_000, workers=10)["rows"] == 800
    assert unit_caps(1_000, workers=10)["rows"] == 32

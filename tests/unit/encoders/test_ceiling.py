import itertools

import pytest
import torch

from virnucpro.encoders.kernels import has_kernels

CPU = torch.device("cpu")


def test_the_best_of_all_measurements_counts(scripts):
    ceiling = scripts.GemmCeiling(
        [scripts.Product(64, 192), scripts.Product(64, 64)], 256, CPU, torch.float32
    )
    rates = []
    for _ in range(3):
        ceiling.measure(0.005)
        rates.append(ceiling.rates[scripts.TORCH_MM])
    assert rates == sorted(rates)
    assert rates[0] > 1e7


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_prepacked_weights_are_measured_if_encoders_use_them(scripts, dtype):
    ceiling = scripts.GemmCeiling([scripts.Product(64, 64)], 64, CPU, dtype)
    ceiling.measure(0.0)
    expected = (
        {scripts.TORCH_MM, scripts.LAID_OUT} if has_kernels(CPU, dtype) else {scripts.TORCH_MM}
    )
    assert set(ceiling.rates) == expected
    assert min(ceiling.rates.values()) > 0


def test_the_given_clock_is_used(scripts):
    ticks = itertools.count(step=2.0)
    ceiling = scripts.GemmCeiling(
        [scripts.Product(8, 4), scripts.Product(8, 4)], 16, CPU, torch.float16, lambda: next(ticks)
    )
    ceiling.measure(0.0)
    assert ceiling.rates == {scripts.TORCH_MM: 2 * 16 * 8 * 4 / 2.0}

import itertools

import torch

from virnucpro.encoders.ceiling import GemmCeiling
from virnucpro.encoders.sizes import Product


def test_the_best_of_all_measurements_counts():
    ceiling = GemmCeiling(
        [Product(64, 192), Product(64, 64)], 256, torch.device("cpu"), torch.float32
    )
    rates = []
    for _ in range(3):
        ceiling.measure(0.005)
        rates.append(ceiling.rate)
    assert rates == sorted(rates)
    assert rates[0] > 1e7


def test_time_is_taken_by_the_clock_that_is_given():
    ticks = itertools.count(step=2.0)
    cpu = torch.device("cpu")
    ceiling = GemmCeiling([Product(8, 4)], 16, cpu, torch.float32, lambda: next(ticks))
    ceiling.measure(0.0)
    assert ceiling.rate == 2 * 16 * 8 * 4 / 2.0

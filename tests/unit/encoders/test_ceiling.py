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

import numpy as np
import pytest

from virnucpro.lab.training.network import Examples, train
from virnucpro.lab.training.settings import NetworkSettings

N, DIM = 60, 3


@pytest.fixture(scope="module")
def examples():
    """Two classes that differ in all features."""
    classes = np.arange(N) % 2
    dice = np.random.default_rng(1)
    features = dice.normal(size=(N, DIM)).astype(np.float32) + 4 * classes[:, None]
    viral = np.array([False, True])
    return Examples(
        features.astype(np.float32), classes, viral, np.arange(N) % 6, np.full(N, 1 / N)
    )


def test_the_finished_share_of_all_networks_is_reported(examples):
    shares = []
    settings = NetworkSettings(hidden=(4,), members=2, draws=5 * 512)
    train(examples, settings, 1, shares.append)
    assert shares == pytest.approx([step / 10 for step in range(1, 11)])
    assert shares[-1] == 1.0


def test_fewer_draws_than_a_batch_are_one_step(examples):
    shares = []
    train(examples, NetworkSettings(hidden=(4,), members=1, draws=5), 1, shares.append)
    assert shares == [1.0]

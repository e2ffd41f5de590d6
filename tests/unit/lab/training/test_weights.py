import numpy as np
import pytest

from virnucpro.lab.training.weights import draw_weights, equal_weights, resampled_weights

GROUPS = [
    *[("virus", "a")] * 3,
    *[("virus", "b")] * 1,
    *[("plant", "c")] * 2,
    *[("plant", "d")] * 4,
    *[("fungi", "e")] * 5,
]


def test_each_class_of_a_resample_has_weight_1_and_its_drawn_groups_are_equal():
    drawn = resampled_weights(GROUPS, 200, 1)
    viral = np.array([kingdom == "virus" for kingdom, _ in GROUPS])
    assert drawn[:, viral].sum(axis=1) == pytest.approx(1)
    assert drawn[:, ~viral].sum(axis=1) == pytest.approx(1)
    of_group = np.stack([drawn[:, first] for first in (4, 6, 10)], axis=1)  # c, d, e
    both = (of_group[:, :2].sum(axis=1) > 0) & (of_group[:, 2] > 0)
    fungi = drawn[both][:, 10:].sum(axis=1)
    assert fungi == pytest.approx(0.5)  # however often e is drawn
    assert (of_group[:, 2] == 0).any()
    np.testing.assert_array_equal(drawn, resampled_weights(GROUPS, 200, 1))


def test_a_resample_that_draws_each_group_once_is_the_data():
    drawn = resampled_weights(GROUPS, 400, 2)
    weights = equal_weights(GROUPS)
    assert (np.abs(drawn - weights).max(axis=1) < 1e-12).any()


def test_no_family_outweighs_the_others_and_phages_have_at_most_one_half():
    """One huge family, one tiny, 60 others; 40 groups of phages; hosts."""
    sizes = {"huge": 20_000, "tiny": 1} | {f"v{number}": 30 for number in range(60)}
    groups = [("virus", name) for name, size in sizes.items() for _ in range(size)]
    phages = [("virus", f"p{number}") for number in range(40) for _ in range(500)]
    hosts = [("bacteria", f"b{number}") for number in range(5) for _ in range(9)]
    sources = ["rna_virus"] * len(groups) + ["tailed_phage"] * len(phages) + ["bacteria"] * 45
    weights = draw_weights([*groups, *phages, *hosts], sources)
    names = np.array([name for _, name in (*groups, *phages, *hosts)])
    assert weights[: -len(hosts)].sum() == pytest.approx(0.5)
    assert weights[names == "huge"].sum() == pytest.approx(0.5 * 0.03, rel=0.02)
    assert weights[names == "tiny"].sum() >= 0.5 * 0.001 * 0.98
    assert weights[[name.startswith("p") for name in names]].sum() <= 0.25 * 1.01

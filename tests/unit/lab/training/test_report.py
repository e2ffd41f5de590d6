import numpy as np

from virnucpro.lab.training.report import weakest_groups


def pieces(kingdom, group, *log_odds):
    return [(kingdom, group, "", 0.0, odds) for odds in log_odds]


def test_the_weakest_groups_come_first():
    """Group b is above x and a quarter of y; three quarters of y are above b. Ties: by name."""
    held_out = {
        500: [
            *pieces("virus", "a", 9.0, 9.0),
            *pieces("virus", "b", 0.5, 0.5),
            *pieces("host", "x", -5.0, -5.0),
            *pieces("host", "y", 1.0, 1.0, 1.0, -9.0),
        ],
        1000: [*pieces("virus", "a", 9.0), *pieces("host", "x", -5.0)],
    }
    found = weakest_groups(held_out, 0.5)
    assert [one[2] for one in found] == ["y", "b", "x", "a"]
    by_group = {one[2]: one[3:] for one in found}
    assert by_group["b"][:2] == ("2", "0.625")
    assert by_group["y"] == ("4", "0.625", "0%")
    assert by_group["a"] == ("3", "1.000", "100%")
    assert np.isclose(float(by_group["x"][1]), 1)

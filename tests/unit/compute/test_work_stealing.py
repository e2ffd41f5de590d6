"""Cases of work stealing: who gives units, which ones, to whom."""

from dataclasses import replace

import pytest

from virnucpro.compute.scheduler import BusyRank, assign_in_turn, steal

SLOW = BusyRank(0, range(10), left=[4, 5, 6, 7, 8, 9], unit_seconds=10.0, silent=1.0)
OTHER = BusyRank(3, range(20, 24), left=[22, 23], unit_seconds=10.0, silent=1.0)


@pytest.mark.parametrize(
    ("units", "ranks", "shares"),
    [
        ([5, 6, 7, 8, 9], [0, 1], {0: (5, 7, 9), 1: (6, 8)}),
        ([5, 6, 7], [4, 2], {2: (5, 7), 4: (6,)}),
        ([5], [1, 2, 3], {1: (5,)}),
        ([], [1, 2], {}),
    ],
)
def test_units_are_split_evenly_in_order_of_ranks(units, ranks, shares):
    assert assign_in_turn(units, ranks) == shares


@pytest.mark.parametrize(
    ("victim", "idle", "start", "stolen"),
    [
        pytest.param(SLOW, [1], 5.0, {1: (8, 9)}, id="half of all but two"),
        pytest.param(SLOW, [1, 2], 5.0, {1: (8,), 2: (9,)}, id="two of three parts"),
        pytest.param(SLOW, range(1, 9), 5.0, {1: (7,), 2: (8,), 3: (9,)}, id="more idle than left"),
        pytest.param(SLOW, [1], 29.9, {1: (8, 9)}, id="start as long as almost half the rest"),
        pytest.param(SLOW, [1], 30.0, {}, id="start as long as half the rest"),
        pytest.param(replace(SLOW, left=[7, 8, 9]), [1], 5.0, {}, id="one unit to share"),
        pytest.param(replace(SLOW, left=[7, 8, 9]), [1, 2], 5.0, {}, id="one unit for three"),
        pytest.param(replace(SLOW, left=[6, 7, 8, 9]), [1], 5.0, {1: (9,)}, id="two to share"),
        pytest.param(replace(SLOW, left=[8, 9]), [1], 5.0, {}, id="the last two"),
        pytest.param(replace(SLOW, left=[]), [1], 5.0, {}, id="nothing left"),
        pytest.param(replace(SLOW, unit_seconds=None), [1], 5.0, {}, id="no unit finished yet"),
        pytest.param(replace(SLOW, silent=50.0), [1], 5.0, {1: (8, 9)}, id="silent, not too long"),
        pytest.param(
            replace(SLOW, silent=50.1), [1], 5.0, {1: (4, 5, 6, 7, 8, 9)}, id="silent for too long"
        ),
        pytest.param(
            replace(SLOW, unit_seconds=None, silent=20.1),
            [1, 2],
            5.0,
            {1: (4, 6, 8), 2: (5, 7, 9)},
            id="silent before its first unit",
        ),
        pytest.param(
            replace(SLOW, failing=True),
            [1],
            500.0,
            {1: (4, 6, 7, 8)},
            id="failing: all but suspects",
        ),
    ],
)
def test_units_stolen_from_the_only_busy_rank(victim, idle, start, stolen):
    assert steal([victim], list(idle), start, suspects=[5, 9]) == (0, stolen)


def test_the_rank_with_the_most_units_left_is_chosen():
    assert steal([OTHER, SLOW], [1], 5.0) == (0, {1: (8, 9)})
    assert steal([OTHER, replace(SLOW, left=[9])], [1], 5.0)[0] == 3


def test_units_that_another_rank_has_taken_over_are_not_stolen_again():
    thief = BusyRank(1, [8, 9], left=[8, 9], unit_seconds=None, silent=0.0)
    assert steal([SLOW, thief], [2], 5.0) == (0, {2: (7,)})
    silent = replace(SLOW, silent=100.0)
    assert steal([silent, thief], [2], 5.0) == (0, {2: (4, 5, 6, 7)})
    assert steal([silent, replace(thief, share=range(4, 10))], [2], 5.0) == (0, {})

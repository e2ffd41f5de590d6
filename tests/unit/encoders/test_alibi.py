import math

import pytest
import torch

from virnucpro.encoders.alibi import attention_bias, head_slopes


def test_slopes_of_eight_heads_halve():
    assert head_slopes(8) == pytest.approx([2.0**-k for k in range(1, 9)])


def test_slopes_of_twelve_heads_are_those_of_eight_and_four_between():
    between = [2.0 ** -(k + 0.5) for k in range(4)]
    assert head_slopes(12) == pytest.approx([2.0**-k for k in range(1, 9)] + between)


@pytest.mark.parametrize("heads", range(1, 34))
def test_there_is_one_distinct_slope_a_head_within_zero_and_one(heads):
    slopes = head_slopes(heads)
    assert len(set(slopes)) == heads
    assert all(0 < slope < 1 for slope in slopes)


def test_bias_is_minus_distance_times_slope_both_ways_and_minus_infinity_at_padding():
    inside = torch.tensor([[True, True, True], [True, True, False]])
    bias = attention_bias(torch.tensor([0.5, 0.25]), inside)
    assert bias.shape == (2, 2, 3, 3)
    assert bias[0, 0].tolist() == [[0, -0.5, -1], [-0.5, 0, -0.5], [-1, -0.5, 0]]
    assert bias[1, 1].tolist() == [
        [0, -0.25, -math.inf],
        [-0.25, 0, -math.inf],
        [-0.5, -0.25, -math.inf],
    ]

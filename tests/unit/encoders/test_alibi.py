import math

import pytest
import torch

from virnucpro.encoders import alibi
from virnucpro.encoders.alibi import LinearBias, attention_bias, head_slopes


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


@pytest.mark.parametrize("lengths", [[600], [600, 450, 1]])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_attention_in_blocks_of_queries_is_that_with_the_whole_bias(lengths, dtype, monkeypatch):
    inside = torch.arange(max(lengths)) < torch.tensor(lengths)[:, None]
    slopes = torch.tensor(head_slopes(4))
    q, k, v = torch.randn(
        3, len(lengths), 4, max(lengths), 8, generator=torch.Generator().manual_seed(3)
    ).to(dtype)
    whole = LinearBias(slopes, inside, dtype).attend(q, k, v)
    made = []
    monkeypatch.setattr(alibi, "_WHOLE_ON_CPU", 400_000)
    monkeypatch.setattr(
        alibi,
        "attention_bias",
        lambda *arguments: made.append(attention_bias(*arguments)) or made[-1],
    )
    blocks = LinearBias(slopes, inside, dtype).attend(q, k, v)
    assert len(made) > 10
    assert max(bias.numel() for bias in made) <= 400_000
    torch.testing.assert_close(blocks, whole, rtol=0, atol=1e-6 if dtype == torch.float32 else 1e-2)

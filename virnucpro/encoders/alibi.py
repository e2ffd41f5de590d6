"""Attention with linear biases (ALiBi), symmetric in both directions."""

import math

import torch

__all__ = ["attention_bias", "head_slopes"]


def head_slopes(heads: int) -> list[float]:
    """Give each head's slope.

    For a power of two n: the geometric series 2^(-8/n), 2^(-16/n), ... For other counts: the slopes
    of the power of two below, then every other one of those of the power above.
    Source: Press et al. 2021, "Train short, test long", and the authors' code.
    """
    below = 2 ** math.floor(math.log2(heads))
    series = [2 ** (-8 * (k + 1) / below) for k in range(below)]
    between = [2 ** (-4 * (k + 1) / below) for k in range(0, 2 * below, 2)]
    return series + between[: heads - below]


def attention_bias(slopes: torch.Tensor, inside: torch.Tensor) -> torch.Tensor:
    """Give what is added to the scores: minus distance times slope, minus infinity at padding.

    Parameters
    ----------
    slopes
        (heads,) float32.
    inside
        (n, width) bool, false at padding.

    Returns
    -------
    (n, heads, width, width) float32, query before key
    """
    position = torch.arange(inside.shape[1], device=inside.device)
    distance = (position[:, None] - position).abs()
    bias = -slopes[:, None, None] * distance
    return bias.masked_fill(~inside[:, None, None, :], -math.inf)

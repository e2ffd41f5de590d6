"""Attention with linear biases (ALiBi), symmetric in both directions."""

import math
from typing import Final

import torch
from torch.nn.functional import scaled_dot_product_attention

__all__ = ["LinearBias", "attention_bias", "head_slopes"]

_WHOLE_ON_CPU: Final = 1 << 24
_WHOLE_ON_GPU: Final = 1 << 27
"""Numbers of a bias that is kept for all layers: 64 MiB and 512 MiB in fp32."""

_BLOCKS: Final = 4
"""A block has at most one part in so many of that. On a CPU 16 MiB were fastest, 64 MiB slower."""


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


def attention_bias(
    slopes: torch.Tensor, inside: torch.Tensor, queries: range | None = None
) -> torch.Tensor:
    """Give what is added to the scores: minus distance times slope, minus infinity at padding.

    Parameters
    ----------
    slopes
        (heads,) float32.
    inside
        (n, width) bool, false at padding.
    queries
        Positions whose scores are wanted; all `width` of them where none are named.

    Returns
    -------
    (n, heads, len(queries), width) float32, query before key
    """
    key = torch.arange(inside.shape[1], device=inside.device)
    query = key if queries is None else key[queries.start : queries.stop]
    distance = (query[:, None] - key).abs()
    bias = -slopes[:, None, None] * distance
    return bias.masked_fill(~inside[:, None, None, :], -math.inf)


class LinearBias:
    """The bias of one batch in all layers, in bounded memory.

    It has width^2 numbers a sequence and head. Made once for all layers where that is little; else
    a block of queries at a time, anew in each layer, which costs about as much as the attention
    itself. A sequence of any length then needs memory in proportion to its length alone.

    Parameters
    ----------
    slopes
        (heads,) float32.
    inside
        (n, width) bool, false at padding.
    dtype
        That of queries, keys and values.
    """

    def __init__(self, slopes: torch.Tensor, inside: torch.Tensor, dtype: torch.dtype) -> None:
        self._slopes, self._inside, self._dtype = slopes, inside, dtype
        n, width = inside.shape
        numbers = n * len(slopes) * width
        most = _WHOLE_ON_CPU if inside.device.type == "cpu" else _WHOLE_ON_GPU
        self._rows = width if numbers * width <= most else max(1, most // _BLOCKS // numbers)
        self._whole = self._bias(range(width)) if self._rows == width else None

    def attend(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        """Attend from every position to every unpadded one: (n, heads, width, head_dim) all."""
        if self._whole is not None:
            return scaled_dot_product_attention(q, k, v, attn_mask=self._whole)
        mixed = torch.empty_like(q)
        for start in range(0, q.shape[2], self._rows):
            queries = range(start, min(start + self._rows, q.shape[2]))
            block = slice(queries.start, queries.stop)
            mixed[:, :, block] = scaled_dot_product_attention(
                q[:, :, block], k, v, attn_mask=self._bias(queries)
            )
        return mixed

    def _bias(self, queries: range) -> torch.Tensor:
        return attention_bias(self._slopes, self._inside, queries).to(self._dtype)

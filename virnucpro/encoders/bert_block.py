"""One layer of DNABERT-S, under the published parameter names."""

import torch
from torch import nn
from torch.nn.functional import gelu

from virnucpro.encoders.alibi import LinearBias

__all__ = ["BertBlock"]


class _Projection(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.Wqkv = nn.Linear(width, 3 * width)


class _Output(nn.Module):
    def __init__(self, width: int, eps: float) -> None:
        super().__init__()
        self.dense = nn.Linear(width, width)
        self.LayerNorm = nn.LayerNorm(width, eps)


class _Attention(nn.Module):
    """Attention with an additive bias, then add and norm."""

    def __init__(self, width: int, heads: int, eps: float) -> None:
        super().__init__()
        self.heads = heads
        self.self = _Projection(width)
        self.output = _Output(width, eps)

    def forward(self, x: torch.Tensor, bias: LinearBias) -> torch.Tensor:
        n, width, channels = x.shape
        joined = self.self.Wqkv(x).view(n, width, 3, self.heads, channels // self.heads)
        q, k, v = joined.permute(2, 0, 3, 1, 4)
        mixed = bias.attend(q, k, v)
        added = self.output.dense(mixed.transpose(1, 2).flatten(2)) + x
        normed: torch.Tensor = self.output.LayerNorm(added)
        return normed


class _GatedUnit(nn.Module):
    """Gated linear unit, then add and norm; the first half of the wide layer is the gate."""

    def __init__(self, width: int, inner: int, eps: float) -> None:
        super().__init__()
        self.gated_layers = nn.Linear(width, 2 * inner, bias=False)
        self.wo = nn.Linear(inner, width)
        self.layernorm = nn.LayerNorm(width, eps)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        gate, value = self.gated_layers(x).chunk(2, dim=-1)
        normed: torch.Tensor = self.layernorm(self.wo(gelu(gate) * value) + x)
        return normed


class BertBlock(nn.Module):
    """Attention and gated linear unit, each with its layer norm after the residual.

    Parameters
    ----------
    width
        Channels.
    heads
        Attention heads; a divisor of `width`.
    inner
        Channels of the gated linear unit.
    eps
        Added to the variance by the layer norms.
    """

    def __init__(self, width: int, heads: int, inner: int, eps: float) -> None:
        super().__init__()
        self.attention = _Attention(width, heads, eps)
        self.mlp = _GatedUnit(width, inner, eps)

    def forward(self, x: torch.Tensor, bias: LinearBias) -> torch.Tensor:
        """Transform (n, width, channels); add `bias` to the scores."""
        result: torch.Tensor = self.mlp(self.attention(x, bias))
        return result

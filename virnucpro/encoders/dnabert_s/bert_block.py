"""One layer of DNABERT-S, under the published parameter names, over rows of tokens."""

from collections.abc import Sequence

import torch
from torch import nn

from virnucpro.encoders.dnabert_s.alibi import BiasedAttention
from virnucpro.encoders.kernels.dense import Dense, GatedDense
from virnucpro.encoders.packed import Run

__all__ = ["BertBlock"]


class _Projection(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.Wqkv = Dense(width, 3 * width)


class _Output(nn.Module):
    def __init__(self, width: int, eps: float) -> None:
        super().__init__()
        self.dense = Dense(width, width)
        self.LayerNorm = nn.LayerNorm(width, eps)


class _Attention(nn.Module):
    """Attention with an additive bias, then add and norm."""

    def __init__(self, width: int, eps: float) -> None:
        super().__init__()
        self.self = _Projection(width)
        self.output = _Output(width, eps)

    def forward(
        self, x: torch.Tensor, attend: BiasedAttention, runs: Sequence[Run]
    ) -> torch.Tensor:
        mixed = attend(self.self.Wqkv(x.to(self.self.Wqkv.bias.dtype)), runs)
        normed: torch.Tensor = self.output.LayerNorm(x + self.output.dense(mixed))
        return normed


class _GatedUnit(nn.Module):
    """Gated linear unit, then add and norm; the first half of the wide layer is the gate."""

    def __init__(self, width: int, inner: int, eps: float) -> None:
        super().__init__()
        self.gated_layers = GatedDense(width, inner)
        self.wo = Dense(inner, width)
        self.layernorm = nn.LayerNorm(width, eps)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        gated = self.gated_layers(x.to(self.wo.bias.dtype))
        normed: torch.Tensor = self.layernorm(x + self.wo(gated))
        return normed


class BertBlock(nn.Module):
    """Attention and gated linear unit, each with its layer norm after the residual.

    Sums and norms are of their own type, fp32 in half precision too; linear layers and attention of
    that of the linear layers.

    Parameters
    ----------
    width
        Channels.
    inner
        Channels of the gated linear unit.
    eps
        Added to the variance by the layer norms.
    """

    def __init__(self, width: int, inner: int, eps: float) -> None:
        super().__init__()
        self.attention = _Attention(width, eps)
        self.mlp = _GatedUnit(width, inner, eps)

    def forward(
        self, x: torch.Tensor, attend: BiasedAttention, runs: Sequence[Run]
    ) -> torch.Tensor:
        """Transform (rows, channels), a row a token of the sequences in `runs`."""
        result: torch.Tensor = self.mlp(self.attention(x, attend, runs))
        return result

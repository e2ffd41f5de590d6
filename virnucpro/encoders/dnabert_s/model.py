"""DNABERT-S's forward pass, a torch module with the published parameter names.

Sources of the architecture: DNABERT-2 (Zhou et al. 2023) and DNABERT-S (Zhou et al. 2024), which
follow MosaicBERT: ALiBi in both directions, gated linear units, layer norm after each residual, no
position embedding.
"""

from collections.abc import Sequence

import torch
from torch import nn

from virnucpro.encoders.dnabert_s.alibi import AlignedBias, BiasedAttention, MirroredBias
from virnucpro.encoders.dnabert_s.config import DnabertSConfig
from virnucpro.encoders.kernels import Dense, GatedDense
from virnucpro.encoders.packed import Packed, Run, mean_of_runs

__all__ = ["DnabertS"]


class DnabertS(nn.Module):
    """DNABERT-S with mean pooling to one vector per sequence; without ``pooler``.

    Residuals and norms have the type of the norms, which is float32 at half precision too. Linear
    layers and attention have the type of the linear layers.
    """

    def __init__(self, config: DnabertSConfig) -> None:
        super().__init__()
        self.embeddings = _Embeddings(config)
        self.encoder = _Stack(config)
        self._mirrored = MirroredBias(config.num_attention_heads)
        self._aligned = AlignedBias(config.num_attention_heads)

    def hidden(self, packed: Packed) -> torch.Tensor:
        """Return the last layer's representation: (rows, dim) of the type of the norms."""
        x: torch.Tensor = self.embeddings(packed.tokens)
        attend = self._mirrored if x.device.type == "cpu" else self._aligned
        for layer in self.encoder.layer:
            x = layer(x, attend, packed.runs)
        return x

    def forward(self, packed: Packed) -> torch.Tensor:
        """Return the mean over all tokens, [CLS] and [SEP] included: (n, dim) float32."""
        return mean_of_runs(self.hidden(packed), packed)


class _Embeddings(nn.Module):
    def __init__(self, config: DnabertSConfig) -> None:
        super().__init__()
        width = config.hidden_size
        self.word_embeddings = nn.Embedding(config.vocab_size, width)
        self.token_type_embeddings = nn.Embedding(config.type_vocab_size, width)
        self.LayerNorm = nn.LayerNorm(width, config.layer_norm_eps)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Add token type 0, the type of all single sequences."""
        normed: torch.Tensor = self.LayerNorm(
            self.word_embeddings(tokens) + self.token_type_embeddings.weight[0]
        )
        return normed


class _Stack(nn.Module):
    def __init__(self, config: DnabertSConfig) -> None:
        super().__init__()
        self.layer = nn.ModuleList(_Layer(config) for _ in range(config.num_hidden_layers))


class _Layer(nn.Module):
    def __init__(self, config: DnabertSConfig) -> None:
        super().__init__()
        self.attention = _Attention(config.hidden_size, config.layer_norm_eps)
        self.mlp = _GatedUnit(config.hidden_size, config.intermediate_size, config.layer_norm_eps)

    def forward(
        self, x: torch.Tensor, attend: BiasedAttention, runs: Sequence[Run]
    ) -> torch.Tensor:
        result: torch.Tensor = self.mlp(self.attention(x, attend, runs))
        return result


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

"""DNABERT-S's forward pass over packed batches, for inference only.

Sources of the architecture: DNABERT-2 (Zhou et al. 2023) and DNABERT-S (Zhou et al. 2024), which
follow MosaicBERT: ALiBi in both directions, gated linear units, layer norm after each residual, no
position embedding.

Attention with linear biases (ALiBi) is symmetric here: the bias depends on the distance of two
tokens, in both directions. Attention is computed for one group of sequences of equal length
(`EqualLengths`) at a time. A group has no padding, so no mask is needed, and its sequences share
one bias.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Final, NamedTuple, TypeAlias

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention

from virnucpro.encoders.dnabert_s.config import DnabertSConfig
from virnucpro.encoders.encoder import EqualLengths, PackedBatch
from virnucpro.encoders.kernels import Layers, Step, on_cache_lines, product

_ALIGNMENT: Final = 16
"""The number of keys is a multiple of this. Otherwise the memory-efficient kernel copies the bias
for each sequence.
Source: torch's ``aten/src/ATen/native/transformers/attention.cpp``, ``pad_bias``."""

_MOST_HELD: Final = 1 << 27
"""Maximum size of the cached bias tables of all lengths, in numbers: 256 MiB in half precision."""

_BLOCK: Final = 1 << 25
"""Size of a block of queries in numbers, if the bias table is too large for the cache."""

_KERNELS: Final = [SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH]
"""Attention kernels that accept a bias with any strides."""


def head_slopes(heads: int) -> list[float]:
    """Return the ALiBi slope of each attention head.

    For n heads, a power of two, the slopes are 2^(-8/n), 2^(-16/n), ... For other numbers of heads,
    the slopes are those of the next lower power of two, then every other slope of the next higher
    power of two.
    Source: Press et al. 2021, "Train short, test long", and the authors' code.
    """
    below = 2 ** math.floor(math.log2(heads))
    series = [2 ** (-8 * (k + 1) / below) for k in range(below)]
    between = [2 ** (-4 * (k + 1) / below) for k in range(0, 2 * below, 2)]
    return series + between[: heads - below]


BiasedAttention: TypeAlias = Callable[[torch.Tensor, Sequence[EqualLengths]], torch.Tensor]
"""Attention between all tokens of a sequence; scores are reduced by distance times slope.

Arguments: (rows, 3 * channels) queries, keys and values, head by head; the groups of sequences of
equal length. Result: (rows, channels), zeros in filler rows.
"""


class MirroredBias:
    """Attention with ALiBi bias on a CPU; the bias is stored as one vector per head.

    With keys in reverse order, the distance of query i and key j depends on i + j: each row of the
    bias is the previous row shifted by one. Therefore 2 * length - 1 stored numbers per head
    replace length^2 numbers. The order of keys and values does not change attention.
    """

    def __init__(self, heads: int) -> None:
        self._slopes = torch.tensor(head_slopes(heads), device="cpu")
        self._ramp = torch.empty(heads, 0, device="cpu")

    def __call__(self, joined: torch.Tensor, groups: Sequence[EqualLengths]) -> torch.Tensor:
        """Return the output of attention for all tokens of a batch; see `BiasedAttention`."""
        self._reach(max(group.length for group in groups))
        return _by_groups(joined, groups, len(self._slopes), self._attend)

    def _attend(self, heads: torch.Tensor) -> torch.Tensor:
        q, k, v = heads.permute(2, 0, 3, 1, 4)
        bias = self.table(q.shape[2]).expand(len(q), -1, -1, -1)
        return scaled_dot_product_attention(q, _mirrored(k), _mirrored(v), attn_mask=bias)

    def table(self, length: int) -> torch.Tensor:
        """Return the ALiBi bias of each pair of query and key, with keys in reverse order.

        The result is not a copy: it shares the memory of the stored vectors.

        Returns
        -------
        (1, heads, length, length) float32
        """
        heads, numbers = self._ramp.shape
        return self._ramp.as_strided(
            (1, heads, length, length), (0, numbers, 1, 1), (numbers + 1) // 2 - length
        )

    def _reach(self, length: int) -> None:
        """Extend the stored bias of each head to sequences of at least `length` tokens."""
        if self._ramp.shape[1] < 2 * length - 1:
            reach = 1 << (length - 1).bit_length()
            distance = torch.arange(1 - reach, reach, device="cpu").abs()
            self._ramp = -self._slopes[:, None] * distance


class AlignedBias:
    """Attention with ALiBi bias on a GPU; a cache stores one bias table per sequence length.

    GPU kernels need aligned rows. Therefore keys are padded to a multiple of 16, and a bias of
    minus infinity masks the padding. A table too large for the cache is computed again in each
    layer, for one block of queries at a time. The CPU does not wait for the GPU.
    """

    def __init__(self, heads: int) -> None:
        self._slopes = torch.tensor(head_slopes(heads), device="cpu")
        self._held: dict[tuple[int, torch.dtype], torch.Tensor] = {}

    def __call__(self, joined: torch.Tensor, groups: Sequence[EqualLengths]) -> torch.Tensor:
        """Return the output of attention for all tokens of a batch; see `BiasedAttention`."""
        if self._slopes.device != joined.device:
            self._slopes = self._slopes.to(joined.device, non_blocking=True)
        attend = partial(self._attend, joined.new_zeros(1))
        with sdpa_kernel(_KERNELS):
            return _by_groups(joined, groups, len(self._slopes), attend)

    def _attend(self, nothing: torch.Tensor, heads: torch.Tensor) -> torch.Tensor:
        length = heads.shape[1]
        q = heads[:, :, 0].transpose(1, 2)
        keys, values = _filled(heads[:, :, 1:], nothing).permute(2, 0, 3, 1, 4)
        numbers = q.shape[1] * length * keys.shape[2]
        if numbers <= _MOST_HELD:
            bias = self._table(q, numbers).expand(len(q), -1, -1, -1)
            return scaled_dot_product_attention(q, keys, values, attn_mask=bias)
        rows = max(1, length * _BLOCK // numbers)
        blocks = (range(i, min(i + rows, length)) for i in range(0, length, rows))
        return torch.cat(
            [
                scaled_dot_product_attention(
                    q[:, :, block.start : block.stop],
                    keys,
                    values,
                    attn_mask=self._bias(q, block).expand(len(q), -1, -1, -1),
                )
                for block in blocks
            ],
            dim=2,
        )

    def _table(self, q: torch.Tensor, numbers: int) -> torch.Tensor:
        key = (q.shape[2], q.dtype)
        if key not in self._held:
            if numbers + sum(table.numel() for table in self._held.values()) > _MOST_HELD:
                self._held.clear()
            self._held[key] = self._bias(q, range(q.shape[2]))
        return self._held[key]

    def _bias(self, q: torch.Tensor, queries: range) -> torch.Tensor:
        """Return the ALiBi bias of `queries`: (1, heads, len(queries), keys), type of `q`."""
        length = q.shape[2]
        query = torch.arange(queries.start, queries.stop, device=q.device)
        key = torch.arange(length + -length % _ALIGNMENT, device=q.device)
        bias = -self._slopes[:, None, None] * (query[:, None] - key).abs()
        return bias.masked_fill_(key >= length, -math.inf).to(q.dtype)[None]


def _mirrored(heads: torch.Tensor) -> torch.Tensor:
    """Reverse the tokens of a (n, heads, length, head_dim) tensor; align rows to cache lines."""
    n, count, length, _ = heads.shape
    rows = on_cache_lines(heads.transpose(1, 2).flip(1).reshape(n * length, -1))
    return rows.view(n, length, count, -1).transpose(1, 2)


def _filled(pairs: torch.Tensor, nothing: torch.Tensor) -> torch.Tensor:
    """Return keys and values, padded with zeros to a multiple of 16 tokens.

    Padding uses one GPU kernel.

    Parameters
    ----------
    pairs
        (n, length, 2, heads, head_dim), keys and values.
    nothing
        (1,), the number zero, with the dtype and device of `pairs`.
    """
    n, length, *shape = pairs.shape
    fill = -length % _ALIGNMENT
    if not fill:
        return pairs
    rows = pairs.flatten(2)  # torch.cat uses a single GPU kernel up to four dimensions only
    return torch.cat([rows, nothing.expand(n, fill, rows.shape[2])], 1).view(n, -1, *shape)


def _by_groups(
    joined: torch.Tensor,
    groups: Sequence[EqualLengths],
    heads: int,
    attend: Callable[[torch.Tensor], torch.Tensor],
) -> torch.Tensor:
    """Compute attention for each group of sequences of equal length; return (rows, channels).

    Arguments and result are those of `BiasedAttention`. `attend` computes attention for one group:
    it converts queries, keys and values (n, length, 3, heads, head_dim) to (n, heads, length,
    head_dim).
    """
    mixed = []
    joined = on_cache_lines(joined)
    for group in groups:
        own = group.of(joined).view(group.n, group.length, 3, heads, -1)
        mixed.append(attend(own).transpose(1, 2).flatten(2).flatten(0, 1))
    filler = len(joined) - groups[-1].stop
    if filler:
        mixed.append(mixed[0].new_zeros(filler, mixed[0].shape[1]))
    return torch.cat(mixed) if len(mixed) > 1 else mixed[0]


class _Layer(NamedTuple):
    queries_keys_values: Step
    out: Step
    after_attention: Step
    gate: Step
    value: Step
    narrow: Step
    after_unit: Step


def _layer(source: Layers, name: str, epsilon: float) -> _Layer:
    # two products of half the width are faster than one
    gate, value = source.placed(f"{name}.mlp.gated_layers.weight", source.dtype).chunk(2)
    return _Layer(
        source.product(f"{name}.attention.self.Wqkv"),
        source.product(f"{name}.attention.output.dense"),
        source.norm(f"{name}.attention.output.LayerNorm", epsilon),
        product(gate, None, activate=True),
        product(value, None),
        source.product(f"{name}.mlp.wo"),
        source.norm(f"{name}.mlp.layernorm", epsilon),
    )


class DnabertS:
    """DNABERT-S without its pooler.

    Parameters
    ----------
    config
        Size of the model.
    tensors
        Tensors with the names and shapes of `DnabertSConfig.tensor_shapes`.
    device, dtype
        Device and type of linear layers and attention. Residuals, norms and embeddings are always
        in float32: they are inaccurate at half precision, and need little time at any precision.
    """

    def __init__(
        self,
        config: DnabertSConfig,
        tensors: Mapping[str, torch.Tensor],
        device: torch.device,
        dtype: torch.dtype,
    ) -> None:
        self.dtype = dtype
        source, epsilon = Layers(tensors, device, dtype), config.layer_norm_eps
        self._words = source.placed("embeddings.word_embeddings.weight", torch.float32)
        self._types = source.placed("embeddings.token_type_embeddings.weight", torch.float32)
        self._first_norm = source.norm("embeddings.LayerNorm", epsilon)
        self._layers = [
            _layer(source, f"encoder.layer.{number}", epsilon)
            for number in range(config.num_hidden_layers)
        ]
        attention = MirroredBias if device.type == "cpu" else AlignedBias
        self._mix: BiasedAttention = attention(config.num_attention_heads)

    def states(self, packed: PackedBatch, layers: Sequence[int]) -> list[torch.Tensor]:
        """Return the vectors of all tokens after each of `layers`: (rows, dim) float32 each.

        Layer 0 are the embeddings. All tokens are of type 0.
        """
        x = self._first_norm(self._words[packed.tokens] + self._types[0])
        kept = {0: x} if 0 in layers else {}
        for number, layer in enumerate(self._layers, 1):
            mixed = self._mix(layer.queries_keys_values(x.to(self.dtype)), packed.groups)
            x = layer.after_attention(x + layer.out(mixed))
            inputs = x.to(self.dtype)
            gated = layer.gate(inputs).mul_(layer.value(inputs))
            x = layer.after_unit(x + layer.narrow(gated))
            if number in layers:
                kept[number] = x
        return [kept[layer] for layer in layers]

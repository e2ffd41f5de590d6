"""ESM-2's forward pass over packed batches, for inference only.

Rotary positions: queries and keys are rotated by an angle proportional to the position.
"""

from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from typing import Final, NamedTuple

import torch
from torch.nn.functional import gelu, linear

from virnucpro.encoders.encoder import CPU_STEP, PackedBatch
from virnucpro.encoders.esm2.config import HEAD_BIAS, MASK, Esm2Config
from virnucpro.encoders.kernels import Layers, Step, attention_on, product

_KEPT: Final = 4096
"""Number of positions with cached rotation factors: 2 MiB for heads of 128 channels."""


def inverse_frequencies(head_dim: int) -> torch.Tensor:
    """Return the default rotary frequencies: (head_dim / 2,) float32, radians per position.

    One frequency belongs to one channel pair. The result is used for files without frequencies.

    Source: Su et al. 2021, RoFormer, base 10,000; written as in fair-esm's ``RotaryEmbedding``.
    """
    return 1.0 / (10000 ** (torch.arange(0, head_dim, 2).float() / head_dim))


def interleave_pairs(rows: torch.Tensor, heads: int) -> torch.Tensor:
    """Return `rows` in another order: both channels of a pair are adjacent, as `rotate` expects.

    A pair is channel j and channel j + head_dim / 2 of an attention head. If the weights of
    queries and of keys are both reordered, the products of queries and keys do not change.

    Parameters
    ----------
    rows
        (dim, ...), weight matrix or bias with one row per output channel.
    heads
        Number of attention heads; dim / heads is even.
    """
    pairs = len(rows) // heads // 2
    return rows.reshape(heads, 2, pairs, *rows.shape[1:]).transpose(1, 2).reshape(rows.shape)


class Rotation:
    """Rotation of queries and keys: one complex64 factor per position and channel pair.

    A channel pair is treated as a complex number and multiplied by a factor of modulus 1. This
    takes a fifth of the time of separate sines and cosines. The angles are computed in float32 for
    every precision. fair-esm computes angles in the precision of the model: in half precision, they
    are inaccurate at high positions. If attention concentrates on few positions, the cosine
    similarity of a vector and its float32 result then falls to 0.982.

    Parameters
    ----------
    frequencies
        (head_dim / 2,) radians per position, of any floating-point type. A file in half precision
        has rounded values (.75 for .749894). They are used unchanged, as in fair-esm.
    device
        Device of the factors.
    """

    def __init__(self, frequencies: torch.Tensor, device: torch.device) -> None:
        self._frequencies = frequencies.to(device, torch.float32)
        self._kept = self._angles(0)

    def table(self, longest: int) -> torch.Tensor:
        """Return the factors of positions below `longest`: (longest, head_dim / 2) complex64."""
        if longest <= len(self._kept):
            return self._kept[:longest]
        table = self._angles(longest)
        if longest <= _KEPT:
            self._kept = table
        return table

    def factors(self, packed: PackedBatch) -> torch.Tensor:
        """Return the rotation factors of each token: (rows, head_dim / 2) complex64."""
        return self.table(max(1, packed.longest))[packed.positions]

    def _angles(self, positions: int) -> torch.Tensor:
        place = torch.arange(positions, dtype=torch.float32, device=self._frequencies.device)
        angles = torch.outer(place, self._frequencies)
        return torch.complex(angles.cos(), angles.sin())


def rotations(frequencies: Iterable[torch.Tensor], device: torch.device) -> list[Rotation]:
    """Return a `Rotation` for each layer; layers with equal frequencies share the same object.

    Parameters
    ----------
    frequencies
        Frequencies of each layer; see `Rotation`.
    device
        Device of the factors.
    """
    made: dict[tuple[float, ...], Rotation] = {}
    keys = []
    for of_layer in frequencies:
        keys.append(key := tuple(of_layer.float().tolist()))
        if key not in made:
            made[key] = Rotation(of_layer, device)
    return [made[key] for key in keys]


def rotate(heads: torch.Tensor, factors: torch.Tensor) -> None:
    """Rotate queries and keys in place, by the position of their token.

    Parameters
    ----------
    heads
        Queries and keys of all heads: (rows, n, head_dim) of any floating-point type, with channels
        in the order of `interleave_pairs`. May be a part of a larger tensor.
    factors
        (rows, head_dim / 2) complex64, from `Rotation.factors`.
    """
    # A GPU's kernel computes pairs of float16 in float32; there are no complex numbers of bfloat16.
    in_place = heads.is_cuda and heads.dtype == torch.float16
    exact = heads if in_place else heads.float()  # no copy if already float32
    torch.view_as_complex(exact.view(*exact.shape[:2], -1, 2)).mul_(factors[:, None])
    if exact is not heads:
        heads.copy_(exact)


_EPSILON: Final = 1e-5
"""Added to the variance in layer norms."""

_NOT_MASKED: Final = 1 - 0.15 * 0.8
"""Scale of the embeddings in models trained with token dropout, with or without masked tokens.

Source: fair-esm's ``ESM2.forward``.
"""

_STRIPE: Final = {"cpu": 8_192, "cuda": 65_536}
"""Maximum number of rows in a feed-forward layer at once on a device, a multiple of `CPU_STEP`. It
limits the memory of the layer's wide side. On a CPU the speed does not depend on it; an H100 is
2 to 4 % faster with 65,536 rows than with 8,192.
"""


class _Layer(NamedTuple):
    before_attention: Step
    queries_keys_values: Step
    out: Step
    before_widening: Step
    widen: Step
    narrow: Step
    rotation: Rotation


def _layer(source: Layers, name: str, heads: int, rotation: Rotation) -> _Layer:
    parts = (source.pair(f"{name}.self_attn.{part}_proj", source.dtype) for part in "qkv")
    weight, bias = (
        torch.cat([interleave_pairs(q, heads), interleave_pairs(k, heads), v])
        for q, k, v in zip(*parts, strict=True)
    )
    return _Layer(
        source.norm(f"{name}.self_attn_layer_norm", _EPSILON),
        product(weight, bias),
        source.product(f"{name}.self_attn.out_proj"),
        source.norm(f"{name}.final_layer_norm", _EPSILON),
        source.product(f"{name}.fc1", activate=True),
        source.product(f"{name}.fc2"),
        rotation,
    )


def _head(source: Layers, name: str, table: torch.Tensor) -> Step:
    dense = source.pair(f"{name}.dense", torch.float32)
    last_norm = source.norm(f"{name}.layer_norm", _EPSILON)
    bias = source.placed(f"{name}.bias", torch.float32)
    return lambda rows: linear(last_norm(gelu(linear(rows, *dense))), table, bias)


class Esm2:
    """ESM-2 without its contact head.

    Parameters
    ----------
    config
        Size of the model.
    tensors
        Tensors with the names and shapes of `Esm2Config.tensor_shapes` and `frequency_shapes`, and
        for `logits` of `head_shapes`.
    device, dtype
        Device and type of the arithmetic. Layer norms, angles and means are always in float32.
    """

    def __init__(
        self,
        config: Esm2Config,
        tensors: Mapping[str, torch.Tensor],
        device: torch.device,
        dtype: torch.dtype,
    ) -> None:
        self._heads = config.attention_heads
        self.dtype = dtype
        source = Layers(tensors, device, dtype)
        table = source.placed("embed_tokens.weight", torch.float32)
        self._embedding = table * _NOT_MASKED if config.token_dropout else table
        names = [f"layers.{number}" for number in range(config.num_layers)]
        frequencies = (tensors[f"{name}.self_attn.rot_emb.inv_freq"] for name in names)
        self._layers = [
            _layer(source, name, self._heads, rotation)
            for name, rotation in zip(names, rotations(frequencies, device), strict=True)
        ]
        self._last_norm = source.norm("emb_layer_norm_after", _EPSILON)
        self._hides = config.token_dropout and HEAD_BIAS in tensors
        if HEAD_BIAS in tensors:
            self._head = _head(source, "lm_head", table)
        self._mix = attention_on(device, dtype, config.embed_dim // self._heads)

    mask = MASK

    def states(self, packed: PackedBatch, layers: Sequence[int]) -> list[torch.Tensor]:
        """Return the vectors of all tokens after each of `layers`: (rows, dim) float32 each.

        Layer 0 are the embeddings. The last layer includes the final layer norm. Sequences have
        <mask> tokens only if the model has a head.
        """
        stream = self._embedding[packed.tokens]
        if self._hides:
            _hide(stream, packed)
        kept = {0: stream.clone()} if 0 in layers else {}
        number = 0
        for rotation, group in groupby(self._layers, lambda layer: layer.rotation):
            factors = rotation.factors(packed)
            for number, layer in enumerate(group, number + 1):  # noqa: B020 - counts all groups
                self._attend(layer, stream, packed, factors)
                self._widen(layer, stream)
                if number in layers and number < len(self._layers):
                    kept[number] = stream.clone()
        if len(self._layers) in layers:
            kept[len(self._layers)] = self._last_norm(stream)
        return [kept[layer] for layer in layers]

    def logits(self, states: torch.Tensor) -> torch.Tensor:
        """Return the logits of `TOKENS`, ``(n, 33)``, of vectors after the last layer."""
        return self._head(states)

    def _attend(
        self, layer: _Layer, stream: torch.Tensor, packed: PackedBatch, factors: torch.Tensor
    ) -> None:
        normed = layer.before_attention(stream).to(self.dtype)
        joined = layer.queries_keys_values(normed).view(len(stream), 3, self._heads, -1)
        rotate(joined[:, :2].flatten(1, 2), factors)
        stream += layer.out(self._mix(joined, packed))

    def _widen(self, layer: _Layer, stream: torch.Tensor) -> None:
        for stripe in torch.split(stream, _stripe_rows(len(stream), stream.device.type)):
            normed = layer.before_widening(stripe).to(self.dtype)
            stripe.add_(layer.narrow(layer.widen(normed)))


def _hide(stream: torch.Tensor, packed: PackedBatch) -> None:
    """Remove the embeddings of <mask> tokens, and scale the others of their sequences, in place.

    Source: token dropout of fair-esm's ``ESM2.forward``.
    """
    hidden = packed.tokens == MASK
    stream[hidden] = 0
    ends = torch.nn.functional.pad(hidden.cumsum(0), (1, 0))[packed.offsets.long()]
    lengths = packed.offsets.diff()
    scales = 1 / (1 - ends.diff() / lengths)
    stream[: packed.total] *= torch.repeat_interleave(scales, lengths)[:, None]


def _stripe_rows(rows: int, device: str) -> int:
    """Return the number of rows that a feed-forward layer computes at once, at most `_STRIPE`.

    The result is a multiple of `CPU_STEP`.
    """
    even = -(-rows // -(-rows // _STRIPE[device]))
    return even + -even % CPU_STEP

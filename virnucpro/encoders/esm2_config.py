"""Size of an ESM-2 model, and the tensors that a model of that size has."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from virnucpro.encoders.config import flag, positive_integer
from virnucpro.errors import BundleError

__all__ = ["Esm2Config", "tensor_shapes"]

_VOCABULARY: Final = 33
_WIDER: Final = 4
"""How many times as wide as the model its feed-forward layers are."""


@dataclass(frozen=True, slots=True)
class Esm2Config:
    """Size of an ESM-2 model, under the names of fair-esm's ``ESM2`` arguments."""

    num_layers: int
    embed_dim: int
    attention_heads: int
    token_dropout: bool = True

    @classmethod
    def read(cls, settings: Mapping[str, object], source: Path) -> "Esm2Config":
        """Check settings that came out of `source`.

        Raises
        ------
        BundleError
            When one is missing or wrong, or when a head has no even number of channels.
        """
        config = cls(
            positive_integer(settings, "num_layers", source),
            positive_integer(settings, "embed_dim", source),
            positive_integer(settings, "attention_heads", source),
            flag(settings, "token_dropout", source),
        )
        if config.embed_dim % (2 * config.attention_heads):
            raise BundleError(
                f"{source}: {config.embed_dim} channels do not divide into "
                f"{config.attention_heads} heads of an even number each, as rotary "
                "positions need. Get the encoder's files again."
            )
        return config


def tensor_shapes(config: Esm2Config) -> dict[str, tuple[int, ...]]:
    """Give name and shape of all tensors but the language model's head and the contacts'.

    Source of the names: the state dict of fair-esm's ``ESM2``.
    """
    dim, heads = config.embed_dim, config.attention_heads
    shapes: dict[str, tuple[int, ...]] = {"embed_tokens.weight": (_VOCABULARY, dim)}
    for number in range(config.num_layers):
        layer = f"layers.{number}"
        for name in ("q_proj", "k_proj", "v_proj", "out_proj"):
            shapes |= _affine(f"{layer}.self_attn.{name}", dim, dim)
        shapes[f"{layer}.self_attn.rot_emb.inv_freq"] = (dim // heads // 2,)
        shapes |= _norm(f"{layer}.self_attn_layer_norm", dim)
        shapes |= _affine(f"{layer}.fc1", _WIDER * dim, dim)
        shapes |= _affine(f"{layer}.fc2", dim, _WIDER * dim)
        shapes |= _norm(f"{layer}.final_layer_norm", dim)
    return shapes | _norm("emb_layer_norm_after", dim)


def _affine(name: str, outputs: int, inputs: int) -> dict[str, tuple[int, ...]]:
    return {f"{name}.weight": (outputs, inputs), f"{name}.bias": (outputs,)}


def _norm(name: str, dim: int) -> dict[str, tuple[int, ...]]:
    return {f"{name}.weight": (dim,), f"{name}.bias": (dim,)}

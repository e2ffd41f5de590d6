"""Size of an ESM-2 model, the tensors that a model of that size has, and what it multiplies."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Final

from virnucpro.encoders.base import View
from virnucpro.encoders.config import flag, positive_integer
from virnucpro.encoders.esm2.residues import TOKENS
from virnucpro.encoders.shapes import Shapes, affine, norm, require_layers, require_shapes, without
from virnucpro.encoders.work import Product, Work
from virnucpro.errors import BundleError

__all__ = ["UNUSED", "Esm2Config"]

UNUSED: Final = ("lm_head.", "contact_head.")
"""Parts of fair-esm's module that no embedding needs."""

_WIDER: Final = 4
"""How many times as wide as the model its feed-forward layers are."""


@dataclass(frozen=True, slots=True)
class Esm2Config:
    """Size of an ESM-2 model, under the names of fair-esm's ``ESM2`` arguments."""

    architecture: ClassVar[str] = "esm2"
    view: ClassVar[View] = "protein"

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

    @property
    def dim(self) -> int:
        """Length of a vector."""
        return self.embed_dim

    @property
    def n_layers(self) -> int:
        """How many layers there are."""
        return self.num_layers

    def tensor_shapes(self) -> Shapes:
        """Give name and shape of all weights but those of the language model and of contacts.

        Source of the names: the state dict of fair-esm's ``ESM2``.
        """
        dim = self.embed_dim
        shapes: Shapes = {"embed_tokens.weight": (len(TOKENS), dim)}
        for layer in self._layers():
            for name in ("q_proj", "k_proj", "v_proj", "out_proj"):
                shapes |= affine(f"{layer}.self_attn.{name}", dim, dim)
            shapes |= norm(f"{layer}.self_attn_layer_norm", dim)
            shapes |= affine(f"{layer}.fc1", dim, _WIDER * dim)
            shapes |= affine(f"{layer}.fc2", _WIDER * dim, dim)
            shapes |= norm(f"{layer}.final_layer_norm", dim)
        return shapes | norm("emb_layer_norm_after", dim)

    def frequency_shapes(self) -> Shapes:
        """Give name and shape of the rotary positions' frequencies, which a file may do without.

        A layer turns by its own.
        """
        shape = (self.embed_dim // self.attention_heads // 2,)
        return {f"{layer}.self_attn.rot_emb.inv_freq": shape for layer in self._layers()}

    def require_weights(self, found: Shapes, source: Path) -> None:
        """Hold the shapes of the tensors in `source` against these settings.

        Raises
        ------
        BundleError
            When they are those of another model; the frequencies may be missing.
        """
        require_layers(self.num_layers, len(found), source)
        frequencies = self.frequency_shapes()
        wanted = self.tensor_shapes() | frequencies
        require_shapes(wanted, without(found, UNUSED), source, may_lack=frequencies)

    def work(self) -> Work:
        """Say what an encoder multiplies."""
        dim = self.embed_dim
        products = (
            Product(dim, 3 * dim),
            Product(dim, dim),
            Product(dim, _WIDER * dim),
            Product(_WIDER * dim, dim),
        )
        return Work(self.num_layers, dim, products)

    def _layers(self) -> list[str]:
        return [f"layers.{number}" for number in range(self.num_layers)]

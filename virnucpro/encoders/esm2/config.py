"""Settings, tensor shapes and token ids of ESM-2."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Final

import numpy as np

from virnucpro.arrays import IntArray, IntegerArray
from virnucpro.encoders.base import View
from virnucpro.encoders.config import EncoderConfig
from virnucpro.encoders.pooling import TokenLayout
from virnucpro.encoders.weights.shapes import (
    Shapes,
    affine,
    norm,
    require_layers,
    require_shapes,
    without,
)
from virnucpro.errors import BundleError

UNUSED: Final = ("lm_head.", "contact_head.")
"""Prefixes of tensors in the checkpoints that embeddings do not use."""

HEAD_BIAS: Final = "lm_head.bias"

_WIDENING: Final = 4
"""Width of the feed-forward layers, as a multiple of the model's width."""


@dataclass(frozen=True, slots=True)
class Esm2Config(EncoderConfig):
    """Settings of an ESM-2 model; the fields are named as the arguments of fair-esm's ``ESM2``."""

    architecture: ClassVar[str] = "esm2"
    view: ClassVar[View] = "protein"

    num_layers: int
    embed_dim: int
    attention_heads: int
    token_dropout: bool = True

    def check(self, source: Path) -> None:
        """Raise BundleError if an attention head has an odd number of channels."""
        if self.embed_dim % (2 * self.attention_heads):
            raise BundleError(
                f"{source}: {self.embed_dim} channels cannot be divided into "
                f"{self.attention_heads} attention heads with an even number of channels each. "
                "Rotary embeddings need this. Get the encoder's files again."
            )

    @property
    def dim(self) -> int:
        """Number of values in an output vector."""
        return self.embed_dim

    @property
    def layout(self) -> TokenLayout:
        """Layers, and the special tokens <cls> and <eos>."""
        return TokenLayout(self.num_layers, first=1, last=1)

    def tensor_shapes(self) -> Shapes:
        """Return the shape of each tensor that the model uses, by tensor name.

        Tensors of the language model, the contact head and the rotary frequencies (see
        `frequency_shapes`) are not included.

        Source of the names: the state dict of fair-esm's ``ESM2``.
        """
        dim = self.embed_dim
        shapes: Shapes = {"embed_tokens.weight": (len(TOKENS), dim)}
        for layer in self._layers():
            for name in ("q_proj", "k_proj", "v_proj", "out_proj"):
                shapes |= affine(f"{layer}.self_attn.{name}", dim, dim)
            shapes |= norm(f"{layer}.self_attn_layer_norm", dim)
            shapes |= affine(f"{layer}.fc1", dim, _WIDENING * dim)
            shapes |= affine(f"{layer}.fc2", _WIDENING * dim, dim)
            shapes |= norm(f"{layer}.final_layer_norm", dim)
        return shapes | norm("emb_layer_norm_after", dim)

    def head_shapes(self) -> Shapes:
        """Return the shape of each tensor of the language model's head, by tensor name.

        The last product is with the embeddings of the tokens.
        """
        shapes = affine("lm_head.dense", self.embed_dim, self.embed_dim)
        return shapes | norm("lm_head.layer_norm", self.embed_dim) | {HEAD_BIAS: (len(TOKENS),)}

    def frequency_shapes(self) -> Shapes:
        """Return the shape of each layer's rotary frequencies by name; optional in a file."""
        shape = (self.embed_dim // self.attention_heads // 2,)
        return {f"{layer}.self_attn.rot_emb.inv_freq": shape for layer in self._layers()}

    def require_weights(self, found: Shapes, source: Path) -> None:
        """Compare the tensor shapes `found` in the file `source` with these settings.

        Raises
        ------
        BundleError
            If the shapes belong to another model. Missing rotary frequencies are not an error.
        """
        require_layers(self.num_layers, len(found), source)
        frequencies = self.frequency_shapes()
        wanted = self.tensor_shapes() | frequencies
        require_shapes(wanted, without(found, UNUSED), source, optional=frequencies)

    def _layers(self) -> list[str]:
        return [f"layers.{number}" for number in range(self.num_layers)]


TOKENS: Final = (
    *("<cls>", "<pad>", "<eos>", "<unk>"),
    *"LAGVSERTIDPKQNFYMHWCXBUZO.-",
    *("<null_1>", "<mask>"),
)
"""Alphabet of every ESM-2 model in the order of the ids. Source: fair-esm's ``ESM-1b``."""

MASK: Final = TOKENS.index("<mask>")
_BEGIN: Final = TOKENS.index("<cls>")
_END: Final = TOKENS.index("<eos>")
_UNKNOWN: Final = TOKENS.index("<unk>")


def _table() -> IntArray:
    table = np.full(256, _UNKNOWN, dtype=np.int64)
    for index, token in enumerate(TOKENS):
        if len(token) == 1:
            table[[ord(token), ord(token.lower())]] = index
    return table


_IDS: Final = _table()


def tokenise_residues(sequences: Sequence[bytes]) -> list[IntegerArray]:
    """Return ESM-2's token ids of each protein sequence, from <cls> to <eos>.

    One byte is one token. Letter case is ignored. ``X B U Z O . -`` have their own tokens. Any
    other byte (``J``, ``*``, ...) becomes <unk>; fair-esm's converter raises KeyError instead. A
    sequence cannot contain a special token: ``<mask>`` is read as six letters.

    Returns
    -------
    list of (n_residues + 2,) int64
        In the order of `sequences`; all arrays share one buffer.
    """
    lengths = np.fromiter(map(len, sequences), dtype=np.int64, count=len(sequences))
    ends = np.cumsum(lengths + 2)
    # the zero bytes reserve places for the special tokens
    letters = b"\0" + b"\0\0".join(sequences) + b"\0"
    ids = _IDS.take(np.frombuffer(letters, dtype=np.uint8))
    starts = ends - lengths - 2
    ids[starts] = _BEGIN
    ids[ends - 1] = _END
    spans = zip(starts.tolist(), ends.tolist(), strict=True)
    return [ids[start:stop] for start, stop in spans]

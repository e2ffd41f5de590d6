"""How large encoders are: the published settings, their tensors, and what they multiply.

Sources: the names of fair-esm's checkpoints say layers and parameters, its ``ESM2`` the rest;
DNABERT-S's config.json.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal

import numpy as np
import numpy.typing as npt

from virnucpro.encoders.base import EncoderSpec
from virnucpro.errors import UsageError

__all__ = [
    "PUBLISHED",
    "Product",
    "PublishedSize",
    "Work",
    "n_parameters",
    "shapes_of",
    "size_named",
    "tensors_of",
    "work_of",
]

Architecture = Literal["esm2", "dnabert_s"]
Shapes = dict[str, tuple[int, ...]]

_RESIDUE_TOKENS: Final = 33


@dataclass(frozen=True, slots=True)
class PublishedSize:
    """A published encoder without its weights: architecture, and the settings of its spec."""

    architecture: Architecture
    config: Mapping[str, int]


def _esm2(num_layers: int, embed_dim: int, attention_heads: int) -> PublishedSize:
    config = {
        "num_layers": num_layers,
        "embed_dim": embed_dim,
        "attention_heads": attention_heads,
        "token_dropout": True,
    }
    return PublishedSize("esm2", config)


PUBLISHED: Final[Mapping[str, PublishedSize]] = {
    "esm2_t6_8M_UR50D": _esm2(6, 320, 20),
    "esm2_t12_35M_UR50D": _esm2(12, 480, 20),
    "esm2_t30_150M_UR50D": _esm2(30, 640, 20),
    "esm2_t33_650M_UR50D": _esm2(33, 1280, 20),
    "esm2_t36_3B_UR50D": _esm2(36, 2560, 40),
    "esm2_t48_15B_UR50D": _esm2(48, 5120, 40),
    "dnabert_s": PublishedSize(
        "dnabert_s",
        {
            "vocab_size": 4096,
            "hidden_size": 768,
            "num_hidden_layers": 12,
            "num_attention_heads": 12,
            "intermediate_size": 3072,
            "type_vocab_size": 2,
        },
    ),
}
"""By name. What is not said here (layer norm's epsilon) has the architecture's own default."""


@dataclass(frozen=True, slots=True)
class Product:
    """A matrix product of a layer: each token's `inputs` numbers become `outputs`."""

    inputs: int
    outputs: int


@dataclass(frozen=True, slots=True)
class Work:
    """What an encoder multiplies. A multiplication and its addition are two operations.

    Attributes
    ----------
    n_layers
        How many layers do the same.
    width
        Numbers of a token between layers; of all attention heads together.
    products
        Matrix products of a layer, those of query, key and value as one.
    """

    n_layers: int
    width: int
    products: tuple[Product, ...]

    @property
    def linear(self) -> int:
        """Operations of the matrix products for one token."""
        return 2 * self.n_layers * sum(one.inputs * one.outputs for one in self.products)

    def attention(self, lengths: npt.ArrayLike) -> int:
        """Count the operations of queries with keys and of weights with values.

        Parameters
        ----------
        lengths
            (n,) tokens of each sequence.
        """
        squares = int((np.asarray(lengths, np.int64) ** 2).sum())
        return 4 * self.n_layers * self.width * squares

    def operations(self, lengths: npt.ArrayLike) -> int:
        """Count all operations for sequences of so many tokens each."""
        return self.linear * int(np.asarray(lengths, np.int64).sum()) + self.attention(lengths)


def size_named(name: str) -> PublishedSize:
    """Find a published size.

    Raises
    ------
    UsageError
        When nothing of that name has been published.
    """
    if name not in PUBLISHED:
        raise UsageError(f"no model {name!r} is known; choose one of {', '.join(PUBLISHED)}.")
    return PUBLISHED[name]


def work_of(spec: EncoderSpec) -> Work:
    """Say what an encoder multiplies.

    Raises
    ------
    UsageError
        When its architecture is none whose products are known here.
    """
    if spec.architecture not in _WORK:
        raise UsageError(
            f"encoder {spec.name!r}: it is not known what an encoder of the architecture "
            f"{spec.architecture!r} multiplies; choose one of {', '.join(_WORK)}."
        )
    return _WORK[spec.architecture]({key: _int(value) for key, value in spec.config.items()})


def tensors_of(size: PublishedSize) -> Shapes:
    """List the tensors of an encoder's file, as `load_encoder` wants them: name -> shape."""
    return _TENSORS[size.architecture](size.config)


def n_parameters(size: PublishedSize) -> int:
    """Count the weights that a published encoder has in use."""
    return sum(math.prod(shape) for shape in tensors_of(size).values())


def shapes_of(*specs: EncoderSpec) -> list[tuple[int, ...]]:
    """List the shapes of all tensors of encoders; none where an encoder's settings do not say them.

    Settings are checked where an encoder is loaded, with an error that names what is wrong.
    """
    return [shape for spec in specs for shape in _shapes_of_one(spec)]


def _shapes_of_one(spec: EncoderSpec) -> list[tuple[int, ...]]:
    config = {key: _int(value) for key, value in spec.config.items()}
    try:
        return list(_TENSORS[spec.architecture](config).values())
    except KeyError:
        return []


def _int(value: object) -> int:
    return int(value) if isinstance(value, int | float) else 0


def _esm2_work(config: Mapping[str, int]) -> Work:
    width = config["embed_dim"]
    return Work(
        config["num_layers"],
        width,
        (
            Product(width, 3 * width),
            Product(width, width),
            Product(width, 4 * width),
            Product(4 * width, width),
        ),
    )


def _dnabert_s_work(config: Mapping[str, int]) -> Work:
    width, inner = config["hidden_size"], config["intermediate_size"]
    return Work(
        config["num_hidden_layers"],
        width,
        (
            Product(width, 3 * width),
            Product(width, width),
            Product(width, 2 * inner),
            Product(inner, width),
        ),
    )


def _linear(name: str, inputs: int, outputs: int) -> Shapes:
    return {f"{name}.weight": (outputs, inputs), f"{name}.bias": (outputs,)}


def _norm(name: str, width: int) -> Shapes:
    return {f"{name}.weight": (width,), f"{name}.bias": (width,)}


def _esm2_tensors(config: Mapping[str, int]) -> Shapes:
    width = config["embed_dim"]
    shapes: Shapes = {"embed_tokens.weight": (_RESIDUE_TOKENS, width)}
    for number in range(config["num_layers"]):
        layer = f"layers.{number}"
        for projection in "qkv":
            shapes |= _linear(f"{layer}.self_attn.{projection}_proj", width, width)
        shapes |= _linear(f"{layer}.self_attn.out_proj", width, width)
        shapes |= _norm(f"{layer}.self_attn_layer_norm", width)
        shapes |= _linear(f"{layer}.fc1", width, 4 * width)
        shapes |= _linear(f"{layer}.fc2", 4 * width, width)
        shapes |= _norm(f"{layer}.final_layer_norm", width)
    return shapes | _norm("emb_layer_norm_after", width)


def _dnabert_s_tensors(config: Mapping[str, int]) -> Shapes:
    width, inner = config["hidden_size"], config["intermediate_size"]
    shapes: Shapes = {
        "embeddings.word_embeddings.weight": (config["vocab_size"], width),
        "embeddings.token_type_embeddings.weight": (config["type_vocab_size"], width),
        **_norm("embeddings.LayerNorm", width),
    }
    for number in range(config["num_hidden_layers"]):
        layer = f"encoder.layer.{number}"
        shapes |= _linear(f"{layer}.attention.self.Wqkv", width, 3 * width)
        shapes |= _linear(f"{layer}.attention.output.dense", width, width)
        shapes |= _norm(f"{layer}.attention.output.LayerNorm", width)
        shapes |= {f"{layer}.mlp.gated_layers.weight": (2 * inner, width)}
        shapes |= _linear(f"{layer}.mlp.wo", inner, width)
        shapes |= _norm(f"{layer}.mlp.layernorm", width)
    return shapes


_WORK: Final = {"esm2": _esm2_work, "dnabert_s": _dnabert_s_work}
_TENSORS: Final = {"esm2": _esm2_tensors, "dnabert_s": _dnabert_s_tensors}

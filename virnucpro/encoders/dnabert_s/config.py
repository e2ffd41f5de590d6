"""Size of a DNABERT-S model, its tensors, what it multiplies, and the files it is published in."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Final

from virnucpro.encoders.base import View
from virnucpro.encoders.config import positive_integer, positive_number
from virnucpro.encoders.shapes import Shapes, affine, norm, require_layers, require_shapes, without
from virnucpro.encoders.work import Product, Work
from virnucpro.errors import BundleError

__all__ = [
    "FILES",
    "PREFIX",
    "UNUSED",
    "DnabertSConfig",
    "DnabertSFiles",
    "find_published",
    "missing_files",
    "read_settings",
]

_SETTINGS: Final = "config.json"
_TOKENIZER: Final = "tokenizer.json"
_WEIGHTS: Final = ("model.safetensors", "pytorch_model.bin")
"""Names that hubs give to the weights; the first one that is there counts."""

PREFIX: Final = "bert."
"""What some checkpoints have before every name."""

UNUSED: Final = ("pooler.", "cls.")
"""Parts of the published checkpoints that no embedding needs."""

FILES: Final = f"{_SETTINGS}, {_TOKENIZER} and {' or '.join(_WEIGHTS)}"
"""What a folder of it holds, for messages."""


@dataclass(frozen=True, slots=True)
class DnabertSConfig:
    """Size of a DNABERT-S model, under the names of its config.json."""

    architecture: ClassVar[str] = "dnabert_s"
    view: ClassVar[View] = "nucleotide"

    vocab_size: int
    hidden_size: int
    num_hidden_layers: int
    num_attention_heads: int
    intermediate_size: int
    type_vocab_size: int = 2
    layer_norm_eps: float = 1e-12

    @classmethod
    def read(cls, settings: Mapping[str, object], source: Path) -> "DnabertSConfig":
        """Check settings that came out of `source`; those of no use here are passed over.

        Raises
        ------
        BundleError
            When one is missing or wrong, or the heads do not divide the channels.
        """
        config = cls(
            positive_integer(settings, "vocab_size", source),
            positive_integer(settings, "hidden_size", source),
            positive_integer(settings, "num_hidden_layers", source),
            positive_integer(settings, "num_attention_heads", source),
            positive_integer(settings, "intermediate_size", source),
            positive_integer(settings, "type_vocab_size", source),
            positive_number(settings, "layer_norm_eps", source),
        )
        if config.hidden_size % config.num_attention_heads:
            raise BundleError(
                f"{source}: {config.hidden_size} channels do not divide into "
                f"{config.num_attention_heads} heads. Get the encoder's files again."
            )
        return config

    @property
    def dim(self) -> int:
        """Length of a vector."""
        return self.hidden_size

    @property
    def n_layers(self) -> int:
        """How many layers there are."""
        return self.num_hidden_layers

    def tensor_shapes(self) -> Shapes:
        """Give name and shape of all weights but those of the pooler and of the language model."""
        width, inner = self.hidden_size, self.intermediate_size
        shapes: Shapes = {
            "embeddings.word_embeddings.weight": (self.vocab_size, width),
            "embeddings.token_type_embeddings.weight": (self.type_vocab_size, width),
            **norm("embeddings.LayerNorm", width),
        }
        for number in range(self.num_hidden_layers):
            layer = f"encoder.layer.{number}"
            shapes |= affine(f"{layer}.attention.self.Wqkv", width, 3 * width)
            shapes |= affine(f"{layer}.attention.output.dense", width, width)
            shapes |= norm(f"{layer}.attention.output.LayerNorm", width)
            shapes |= {f"{layer}.mlp.gated_layers.weight": (2 * inner, width)}
            shapes |= affine(f"{layer}.mlp.wo", inner, width)
            shapes |= norm(f"{layer}.mlp.layernorm", width)
        return shapes

    def require_weights(self, found: Shapes, source: Path) -> None:
        """Hold the shapes of the tensors in `source` against these settings.

        Raises
        ------
        BundleError
            When they are those of another model.
        """
        require_layers(self.num_hidden_layers, len(found), source)
        bare = {name.removeprefix(PREFIX): shape for name, shape in found.items()}
        require_shapes(self.tensor_shapes(), without(bare, UNUSED), source)

    def work(self) -> Work:
        """Say what an encoder multiplies."""
        width, inner = self.hidden_size, self.intermediate_size
        products = (
            Product(width, 3 * width),
            Product(width, width),
            Product(width, inner),
            Product(width, inner),
            Product(inner, width),
        )
        return Work(self.num_hidden_layers, width, products)


@dataclass(frozen=True, slots=True)
class DnabertSFiles:
    """The three files of a folder as hubs serve it."""

    settings: Path
    tokenizer: Path
    weights: Path


def find_published(folder: Path) -> DnabertSFiles | None:
    """Find the files of a DNABERT-S folder; none where they are not all there."""
    weights = _first_weights(folder)
    if weights is None or missing_files(folder):
        return None
    return DnabertSFiles(folder / _SETTINGS, folder / _TOKENIZER, weights)


def missing_files(folder: Path) -> list[str]:
    """Name the files that a DNABERT-S folder would have and this one has not."""
    missing = [name for name in (_SETTINGS, _TOKENIZER) if not (folder / name).is_file()]
    return missing if _first_weights(folder) else [*missing, " or ".join(_WEIGHTS)]


def _first_weights(folder: Path) -> Path | None:
    return next((path for name in _WEIGHTS if (path := folder / name).is_file()), None)


def read_settings(path: Path) -> DnabertSConfig:
    """Read a config.json.

    Raises
    ------
    BundleError
        When it cannot be read, is no JSON, or lacks a setting.
    """
    try:
        settings = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise BundleError(f"{path}: is no JSON file ({error}). Get the file again.") from error
    if not isinstance(settings, dict):
        raise BundleError(f"{path}: holds no settings by name. Get the file again.")
    return DnabertSConfig.read(settings, path)

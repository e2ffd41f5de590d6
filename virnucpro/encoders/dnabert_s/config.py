"""Settings, tensor shapes and published files of DNABERT-S."""

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Final

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

_SETTINGS: Final = "config.json"
_TOKENIZER: Final = "tokenizer.json"
_WEIGHTS: Final = ("model.safetensors", "pytorch_model.bin")
"""Names of the weights on model hubs, in order of preference."""

PREFIX: Final = "bert."
"""Prefix of all tensor names in some checkpoints."""

UNUSED: Final = ("pooler.", "cls.")
"""Prefixes of tensors in the published checkpoints that embeddings do not use."""

FILES: Final = f"{_SETTINGS}, {_TOKENIZER} and {' or '.join(_WEIGHTS)}"
"""Files of a published folder, for messages."""


@dataclass(frozen=True, slots=True)
class DnabertSConfig(EncoderConfig):
    """Settings of a DNABERT-S model; the fields have the names in its config.json."""

    architecture: ClassVar[str] = "dnabert_s"
    view: ClassVar[View] = "nucleotide"

    vocab_size: int
    hidden_size: int
    num_hidden_layers: int
    num_attention_heads: int
    intermediate_size: int
    type_vocab_size: int = 2
    layer_norm_eps: float = 1e-12

    def check(self, source: Path) -> None:
        """Raise BundleError if ``hidden_size`` is not a multiple of ``num_attention_heads``."""
        if self.hidden_size % self.num_attention_heads:
            raise BundleError(
                f"{source}: {self.hidden_size} channels cannot be divided into "
                f"{self.num_attention_heads} attention heads. Get the encoder's files again."
            )

    @property
    def dim(self) -> int:
        """Number of values in an output vector."""
        return self.hidden_size

    @property
    def layout(self) -> TokenLayout:
        """Layers, and the special tokens [CLS] and [SEP], which the published mean includes."""
        return TokenLayout(self.num_hidden_layers, first=1, last=1, mean_of_all=True)

    def tensor_shapes(self) -> Shapes:
        """Return the shape of each tensor that the model uses, by tensor name.

        Tensors of the pooler and of the language model are not included.
        """
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
        """Compare the tensor shapes `found` in the file `source` with these settings.

        Raises
        ------
        BundleError
            If the shapes belong to another model.
        """
        require_layers(self.num_hidden_layers, len(found), source)
        bare = {name.removeprefix(PREFIX): shape for name, shape in found.items()}
        require_shapes(self.tensor_shapes(), without(bare, UNUSED), source)


@dataclass(frozen=True, slots=True)
class DnabertSFiles:
    """Paths of the settings, tokeniser and weights files of the published DNABERT-S."""

    settings: Path
    tokenizer: Path
    weights: Path


def find_published(folder: Path) -> DnabertSFiles | None:
    """Return the paths of the settings, tokeniser and weights files in a DNABERT-S folder.

    Return None if one of the files is missing.
    """
    if missing_files(folder):
        return None
    weights = next(path for name in _WEIGHTS if (path := folder / name).is_file())
    return DnabertSFiles(folder / _SETTINGS, folder / _TOKENIZER, weights)


def missing_files(folder: Path) -> list[str]:
    """Return the names of the files that a DNABERT-S folder lacks."""
    missing = [name for name in (_SETTINGS, _TOKENIZER) if not (folder / name).is_file()]
    has_weights = any((folder / name).is_file() for name in _WEIGHTS)
    return missing if has_weights else [*missing, " or ".join(_WEIGHTS)]

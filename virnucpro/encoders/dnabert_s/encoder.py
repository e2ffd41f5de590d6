"""DNABERT-S: bases to a vector, as a module of our own under the published parameter names.

Source of the architecture: DNABERT-2 (Zhou et al. 2023) and DNABERT-S (Zhou et al. 2024), which
follow MosaicBERT: ALiBi in both directions, gated linear units, layer norm after each residual, no
position embedding.
"""

from dataclasses import asdict
from pathlib import Path
from typing import Final

import torch
from torch import nn

from virnucpro.encoders.base import Encoder, EncoderSpec, Precision
from virnucpro.encoders.dnabert_s.alibi import AlignedBias, MirroredBias
from virnucpro.encoders.dnabert_s.bases import BaseTokeniser
from virnucpro.encoders.dnabert_s.bert_block import BertBlock
from virnucpro.encoders.dnabert_s.config import (
    PREFIX,
    UNUSED,
    DnabertSConfig,
    find_published,
    read_settings,
)
from virnucpro.encoders.kernels.dense import prepack
from virnucpro.encoders.memory.memory_needed import require_room
from virnucpro.encoders.memory.placement import device_bytes, dtype_of, open_device
from virnucpro.encoders.module_encoder import ModuleEncoder
from virnucpro.encoders.packed import Packed, mean_of_runs
from virnucpro.encoders.shapes import without
from virnucpro.encoders.weights.fill import fill
from virnucpro.encoders.weights.pickles import read_state_dict, require_intact, shapes_in
from virnucpro.encoders.weights.unfilled import unfilled
from virnucpro.errors import BundleError

__all__ = ["DnabertS", "load", "needed_tensors", "recognise"]

_STARTING_DEVIATION: Final = 0.02
"""Standard deviation of untrained weights: ``initializer_range`` of the published config."""


class _Embeddings(nn.Module):
    def __init__(self, config: DnabertSConfig) -> None:
        super().__init__()
        width = config.hidden_size
        self.word_embeddings = nn.Embedding(config.vocab_size, width)
        self.token_type_embeddings = nn.Embedding(config.type_vocab_size, width)
        self.LayerNorm = nn.LayerNorm(width, config.layer_norm_eps)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Add token type 0, the only one there is in single sequences."""
        normed: torch.Tensor = self.LayerNorm(
            self.word_embeddings(tokens) + self.token_type_embeddings.weight[0]
        )
        return normed


class _Stack(nn.Module):
    def __init__(self, config: DnabertSConfig) -> None:
        super().__init__()
        self.layer = nn.ModuleList(
            BertBlock(config.hidden_size, config.intermediate_size, config.layer_norm_eps)
            for _ in range(config.num_hidden_layers)
        )


class DnabertS(nn.Module):
    """DNABERT-S pooled to a vector a sequence; without ``pooler``, which no embedding needs."""

    def __init__(self, config: DnabertSConfig) -> None:
        super().__init__()
        self.embeddings = _Embeddings(config)
        self.encoder = _Stack(config)
        self._mirrored = MirroredBias(config.num_attention_heads)
        self._aligned = AlignedBias(config.num_attention_heads)
        self.apply(_start)

    def hidden(self, packed: Packed) -> torch.Tensor:
        """Give the last layer's representation: (rows, dim) of the type of the norms."""
        x: torch.Tensor = self.embeddings(packed.tokens)
        attend = self._mirrored if x.device.type == "cpu" else self._aligned
        for layer in self.encoder.layer:
            x = layer(x, attend, packed.runs)
        return x

    def forward(self, packed: Packed) -> torch.Tensor:
        """Give the mean over all tokens, [CLS] and [SEP] included: (n, dim) float32."""
        return mean_of_runs(self.hidden(packed), packed)


def load(spec: EncoderSpec, device: str, precision: Precision) -> Encoder:
    """Open a DNABERT-S encoder.

    Parameters
    ----------
    spec
        Names a ``weights`` file (safetensors, or a state dict by ``torch.save``; published
        parameter names, with or without ``bert.`` before them) and a ``tokenizer`` file; its config
        holds the fields of `DnabertSConfig`.
    device
        torch's name of it.
    precision
        Type of the weights and of the arithmetic.

    Raises
    ------
    BundleError
        When a file cannot be read, its tensors are not those of this model, or the tokeniser knows
        more ids than the model.
    DeviceError
        When there is no such device, or the weights are more than it can hold.
    UsageError
        When there is no such precision.
    """
    path = spec.file("weights")
    config = DnabertSConfig.read(spec.config, path)
    torch_device, dtype = open_device(device), dtype_of(precision)
    shapes = config.tensor_shapes().values()
    require_room(spec.name, shapes, precision, device, device_bytes(torch_device))
    tokeniser = _tokeniser(spec.file("tokenizer"), config)
    with unfilled():
        model = DnabertS(config)
    fill(model, needed_tensors(path), path, torch_device, dtype)
    prepack(model)
    return ModuleEncoder(spec.name, config.dim, config.view, tokeniser, model, torch_device)


def recognise(path: Path) -> EncoderSpec | None:
    """Describe the DNABERT-S folder at `path`; none where its three files are not all there.

    Weights that ``torch.save`` wrote are read through, so that damage is told once.

    Raises
    ------
    BundleError
        When config.json cannot be read, or lacks a setting; when the weights are damaged or of
        another size; when
        tokenizer.json is not this model's.
    """
    found = find_published(path)
    if found is None:
        return None
    if found.weights.suffix == ".bin":
        require_intact(found.weights)
    config = read_settings(found.settings)
    config.require_weights(shapes_in(found.weights), found.weights)
    _tokeniser(found.tokenizer, config)
    name = path.resolve().name
    files = {"weights": found.weights.name, "tokenizer": found.tokenizer.name}
    return EncoderSpec(
        name, config.architecture, config.view, config.dim, path, files, asdict(config)
    )


def needed_tensors(path: Path) -> dict[str, torch.Tensor]:
    """Read the tensors of published weights that embedding needs, by their bare names.

    Raises
    ------
    BundleError
        When the file cannot be read, or holds anything but tensors; nothing of it has run.
    """
    tensors = {name.removeprefix(PREFIX): t for name, t in read_state_dict(path).items()}
    return without(tensors, UNUSED)


def _tokeniser(path: Path, config: DnabertSConfig) -> BaseTokeniser:
    """Open a tokeniser, none of whose ids the model lacks."""
    tokeniser = BaseTokeniser(path)
    if tokeniser.vocabulary_size > config.vocab_size:
        raise BundleError(
            f"{path}: gives ids up to {tokeniser.vocabulary_size - 1}, and the model beside it has "
            f"{config.vocab_size} tokens. Take both files from the same model."
        )
    return tokeniser


def _start(module: nn.Module) -> None:
    if isinstance(module, nn.Linear | nn.Embedding):
        nn.init.normal_(module.weight, std=_STARTING_DEVIATION)
    if isinstance(module, nn.Linear) and module.bias is not None:
        nn.init.zeros_(module.bias)

"""DNABERT-S: load an encoder, and recognise published files."""

from dataclasses import asdict
from pathlib import Path

import torch

from virnucpro.encoders.base import EncoderSpec, Precision
from virnucpro.encoders.dnabert_s.config import (
    PREFIX,
    UNUSED,
    DnabertSConfig,
    find_published,
    read_settings,
)
from virnucpro.encoders.dnabert_s.model import DnabertS
from virnucpro.encoders.dnabert_s.tokeniser import BpeTokeniser
from virnucpro.encoders.encoder import Encoder
from virnucpro.encoders.kernels.dense import prepack
from virnucpro.encoders.memory.memory_needed import require_room
from virnucpro.encoders.memory.placement import device_bytes, dtype_of, open_device
from virnucpro.encoders.weights.fill import fill, init_empty_weights
from virnucpro.encoders.weights.pickles import read_state_dict, require_intact, shapes_in
from virnucpro.encoders.weights.shapes import without
from virnucpro.errors import BundleError

__all__ = ["load", "needed_tensors", "recognise"]


def load(spec: EncoderSpec, device: str, precision: Precision) -> Encoder:
    """Load a DNABERT-S encoder.

    Parameters
    ----------
    spec
        Its files are ``weights`` (safetensors, or a state dict by ``torch.save``; published
        parameter names, with or without the prefix ``bert.``) and ``tokenizer``; its config has
        the fields of `DnabertSConfig`.
    device
        torch's name of the device.
    precision
        Type of the weights and of the arithmetic.

    Raises
    ------
    BundleError
        If a file cannot be read, its tensors are not those of this model, or the tokeniser has
        more ids than the model.
    DeviceError
        If there is no such device, or it has not enough memory.
    UsageError
        If there is no such precision.
    """
    path = spec.file("weights")
    config = DnabertSConfig.read(spec.config, path)
    torch_device, dtype = open_device(device), dtype_of(precision)
    shapes = config.tensor_shapes().values()
    require_room(spec.name, shapes, precision, device, device_bytes(torch_device))
    tokeniser = _tokeniser(spec.file("tokenizer"), config)
    with init_empty_weights():
        model = DnabertS(config)
    fill(model, needed_tensors(path), path, torch_device, dtype)
    prepack(model)
    return Encoder(spec.name, config.dim, config.view, tokeniser, model, torch_device)


def recognise(path: Path) -> EncoderSpec | None:
    """Describe the DNABERT-S folder at `path`; None if one of its three files is missing.

    Weights that ``torch.save`` wrote are read completely, to find damage once and early.

    Raises
    ------
    BundleError
        If config.json cannot be read or lacks a setting, the weights are damaged or of another
        size, or tokenizer.json belongs to another model.
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
    """Read the tensors of published weights that embeddings use, by their names without prefix.

    Raises
    ------
    BundleError
        If the file cannot be read, or contains anything but tensors. No code of the file runs.
    """
    tensors = {name.removeprefix(PREFIX): t for name, t in read_state_dict(path).items()}
    return without(tensors, UNUSED)


def _tokeniser(path: Path, config: DnabertSConfig) -> BpeTokeniser:
    """Open a tokeniser; all its ids must be ids of the model."""
    tokeniser = BpeTokeniser(path)
    if tokeniser.vocabulary_size > config.vocab_size:
        raise BundleError(
            f"{path}: gives ids up to {tokeniser.vocabulary_size - 1}, and the model has "
            f"{config.vocab_size} tokens. Use both files of the same model."
        )
    return tokeniser

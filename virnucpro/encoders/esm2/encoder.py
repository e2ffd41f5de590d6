"""ESM-2: load an encoder, and recognise fair-esm's checkpoints."""

from argparse import Namespace
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Final

import torch

from virnucpro.encoders.base import EncoderSpec, Precision
from virnucpro.encoders.device import device_bytes, dtype_of, open_device
from virnucpro.encoders.encoder import Encoder
from virnucpro.encoders.esm2.config import UNUSED, Esm2Config, tokenise_residues
from virnucpro.encoders.esm2.huggingface import fair_names, read_settings
from virnucpro.encoders.esm2.model import Esm2, inverse_frequencies
from virnucpro.encoders.huggingface.config import WEIGHTS
from virnucpro.encoders.memory import require_memory
from virnucpro.encoders.pooled import pooled
from virnucpro.encoders.pooling import PoolingPlan
from virnucpro.encoders.weights.fill import check_layout, check_tensors, read_safetensors
from virnucpro.encoders.weights.pickles import named_tensors, read_pickle, require_intact
from virnucpro.encoders.weights.shapes import Shapes, read_shapes, require_layers, without
from virnucpro.errors import BundleError

__all__ = ["load", "needed_tensors", "read_checkpoint", "recognise"]

_LINEAR: Final = ("_proj.", ".fc1.", ".fc2.")
"""Name fragments of the tensors that `Esm2` converts to the precision of the arithmetic."""

_PUBLISHED_NAMES: Final = {
    "num_layers": "encoder_layers",
    "embed_dim": "encoder_embed_dim",
    "attention_heads": "encoder_attention_heads",
    "token_dropout": "token_dropout",
}
"""Field of `Esm2Config` -> name of the setting in a checkpoint."""


def load(spec: EncoderSpec, device: str, precision: Precision) -> Encoder:
    """Load an ESM-2 encoder onto a device.

    Parameters
    ----------
    spec
        The spec's ``weights`` are fair-esm's ``.pt``, or a ``.safetensors`` file with the names of
        `Esm2Config.tensor_shapes` or of transformers; its config has the fields of `Esm2Config`.
    device
        torch's name of the device.
    precision
        Type of the weights and of the arithmetic.

    Raises
    ------
    BundleError
        If a file cannot be read, or its tensors are not those of this model.
    DeviceError
        If there is no such device, or it has not enough memory.
    UsageError
        If there is no such precision.
    """
    path = spec.file("weights")
    config = Esm2Config.read(spec.config, path)
    torch_device, dtype = open_device(device), dtype_of(precision)
    shapes = _all_shapes(config)
    require_memory(spec.name, shapes.values(), precision, device, device_bytes(torch_device))
    if path.suffix == ".safetensors":
        stored = fair_names(read_safetensors(path), path)
    else:
        own, stored = read_checkpoint(path)
        if own != config:
            raise BundleError(
                f"{path}: the checkpoint has {own}, but the encoder's settings are {config}. "
                "Use settings and weights of the same model."
            )
    tensors = _with_frequencies(stored, config)
    rounded = {name for name in shapes if any(part in name for part in _LINEAR)}
    check_tensors(shapes, tensors, path, rounded, dtype)
    _check_frequencies(config, tensors, path)
    model = Esm2(config, tensors, torch_device, dtype)
    plan = PoolingPlan(spec.pooling, config.layout)
    module = pooled(model, plan)
    return Encoder(spec.name, spec.dim, config.view, tokenise_residues, module, torch_device, plan)


def recognise(path: Path) -> EncoderSpec | None:
    """Return the `EncoderSpec` of a fair-esm ``.pt`` file, or of ESM-2 in a Hugging Face folder.

    Return None for other files and folders.

    The file is read completely, to detect damage before a run starts.

    Raises
    ------
    BundleError
        If a ``.pt`` file is not an ESM-2 checkpoint, is damaged, or does not fit its settings.
    """
    if path.is_dir():
        return _recognise_folder(path)
    if path.suffix != ".pt" or not path.is_file():
        return None
    require_intact(path)
    config, stored = read_checkpoint(path)
    tensors = _with_frequencies(stored, config)
    check_layout(_all_shapes(config), tensors, path)
    _check_frequencies(config, tensors, path)
    files = {"weights": path.name}
    return EncoderSpec(
        path.stem, config.architecture, config.view, config.dim, path.parent, files, asdict(config)
    )


def _recognise_folder(folder: Path) -> EncoderSpec | None:
    config = read_settings(folder)
    if config is None:
        return None
    path = folder / WEIGHTS
    config.require_weights(fair_names(read_shapes(path), path), path)
    files = {"weights": WEIGHTS}
    name = folder.resolve().name
    return EncoderSpec(
        name, config.architecture, config.view, config.dim, folder, files, asdict(config)
    )


def needed_tensors(path: Path) -> dict[str, torch.Tensor]:
    """Return the tensors in a fair-esm checkpoint that the model uses, by name.

    Raises
    ------
    BundleError
        If the file is not an ESM-2 checkpoint. Code in the file is not executed.
    """
    _, tensors = read_checkpoint(path)
    return without(tensors, UNUSED)


def read_checkpoint(path: Path) -> tuple[Esm2Config, dict[str, torch.Tensor]]:
    """Return the settings and the memory-mapped tensors of a fair-esm checkpoint.

    Raises
    ------
    BundleError
        If the file is not an ESM-2 checkpoint. Code in the file is not executed.
    """
    match read_pickle(path):
        case {"cfg": {"model": Namespace() as settings}, "model": dict() as content}:
            published = vars(settings)
        case _:
            raise BundleError(
                f"{path}: is not an ESM-2 checkpoint of fair-esm, which contains 'cfg' and "
                "'model'. Give an esm2_*.pt file (ESM-1 and ESM-1b have another format)."
            )
    own = {own: published[name] for own, name in _PUBLISHED_NAMES.items() if name in published}
    config, stored = Esm2Config.read(own, path), named_tensors(content, path)
    tensors: dict[str, torch.Tensor] = {}
    for name, tensor in stored.items():
        # fair-esm's loader removes fairseq's prefixes in this order
        bare = name.removeprefix("encoder.").removeprefix("sentence_encoder.")
        if bare in tensors:
            raise BundleError(
                f"{path}: contains two tensors with the name {bare!r}. Get the file again."
            )
        tensors[bare] = tensor
    require_layers(config.num_layers, len(tensors), path)
    return config, tensors


def _with_frequencies(
    tensors: Mapping[str, torch.Tensor], config: Esm2Config
) -> dict[str, torch.Tensor]:
    """Return the tensors that `Esm2` uses; compute rotary frequencies missing from the file."""
    computed = inverse_frequencies(config.embed_dim // config.attention_heads)
    return dict.fromkeys(config.frequency_shapes(), computed) | without(tensors, UNUSED)


def _all_shapes(config: Esm2Config) -> Shapes:
    """Return the shape of each tensor that `Esm2` requires, by tensor name."""
    return config.tensor_shapes() | config.frequency_shapes()


def _check_frequencies(config: Esm2Config, tensors: Mapping[str, torch.Tensor], path: Path) -> None:
    for name in config.frequency_shapes():
        exact = tensors[name].float()
        if not (exact.isfinite() & (exact >= 0)).all():
            raise BundleError(
                f"{path}: the rotary frequencies in tensor {name!r} contain negative numbers, "
                "infinity or NaN. Get the file again."
            )

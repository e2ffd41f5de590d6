"""ESM-2: residues to a vector, from fair-esm's checkpoints or from a bundle's safetensors."""

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Final

import torch

from virnucpro.encoders.base import Encoder, EncoderSpec, Precision
from virnucpro.encoders.esm2.checkpoint import read_checkpoint
from virnucpro.encoders.esm2.config import UNUSED, Esm2Config
from virnucpro.encoders.esm2.forward import Esm2
from virnucpro.encoders.esm2.residues import tokenise_residues
from virnucpro.encoders.esm2.rotary import inverse_frequencies
from virnucpro.encoders.memory.memory_needed import require_room
from virnucpro.encoders.memory.placement import device_bytes, dtype_of, open_device
from virnucpro.encoders.module_encoder import ModuleEncoder
from virnucpro.encoders.shapes import Shapes, without
from virnucpro.encoders.weights.fill import check, check_layout, read_safetensors
from virnucpro.encoders.weights.pickles import require_intact
from virnucpro.errors import BundleError

__all__ = ["load", "needed_tensors", "recognise"]

_LINEAR: Final = ("_proj.", ".fc1.", ".fc2.")
"""Parts of the names of what `Esm2` multiplies with in the precision that is computed with."""


def load(spec: EncoderSpec, device: str, precision: Precision) -> Encoder:
    """Open an ESM-2 encoder.

    Parameters
    ----------
    spec
        Its ``weights`` are fair-esm's ``.pt`` or a ``.safetensors`` with the names of
        `Esm2Config.tensor_shapes`; its config holds the fields of `Esm2Config`.
    device
        torch's name of it.
    precision
        Type of the weights and of the arithmetic.

    Raises
    ------
    BundleError
        When a file cannot be read, or its tensors are not those of this model.
    DeviceError
        When there is no such device, or the weights are more than it can hold.
    UsageError
        When there is no such precision.
    """
    path = spec.file("weights")
    config = Esm2Config.read(spec.config, path)
    torch_device, dtype = open_device(device), dtype_of(precision)
    shapes = _all_shapes(config)
    require_room(spec.name, shapes.values(), precision, device, device_bytes(torch_device))
    tensors = _tensors(path, config)
    rounded = {name for name in shapes if any(part in name for part in _LINEAR)}
    check(shapes, tensors, path, rounded, dtype)
    _check_frequencies(config, tensors, path)
    model = Esm2(config, tensors, torch_device, dtype)
    return ModuleEncoder(spec.name, config.dim, config.view, tokenise_residues, model, torch_device)


def recognise(path: Path) -> EncoderSpec | None:
    """Describe the fair-esm ESM-2 checkpoint at `path`; none where no ``.pt`` file is.

    All of the file is read, so that damage is told once, before anybody begins to load it.

    Raises
    ------
    BundleError
        When a ``.pt`` file is there that is no ESM-2 checkpoint, whole and of the size it says.
    """
    if path.suffix != ".pt" or not path.is_file():
        return None
    require_intact(path)
    config, tensors = read_checkpoint(path)
    needed = _with_frequencies(tensors, config)
    check_layout(_all_shapes(config), needed, path)
    _check_frequencies(config, needed, path)
    files = {"weights": path.name}
    return EncoderSpec(
        path.stem, config.architecture, config.view, config.dim, path.parent, files, asdict(config)
    )


def needed_tensors(path: Path) -> dict[str, torch.Tensor]:
    """Read the tensors of a fair-esm checkpoint that embedding needs, as the file has them.

    Raises
    ------
    BundleError
        When it is no ESM-2 checkpoint; nothing of it has run.
    """
    _, tensors = read_checkpoint(path)
    return without(tensors, UNUSED)


def _tensors(path: Path, config: Esm2Config) -> dict[str, torch.Tensor]:
    """Read what `Esm2` needs."""
    if path.suffix == ".safetensors":
        tensors = read_safetensors(path)
    else:
        own, tensors = read_checkpoint(path)
        if own != config:
            raise BundleError(
                f"{path}: the checkpoint is of {own}, and the encoder's settings say {config}. "
                "Take settings and weights from the same model."
            )
    return _with_frequencies(tensors, config)


def _with_frequencies(
    tensors: Mapping[str, torch.Tensor], config: Esm2Config
) -> dict[str, torch.Tensor]:
    """Leave out what no embedding needs, and add the frequencies that a file does without."""
    computed = inverse_frequencies(config.embed_dim // config.attention_heads)
    return dict.fromkeys(config.frequency_shapes(), computed) | without(tensors, UNUSED)


def _all_shapes(config: Esm2Config) -> Shapes:
    """Give name and shape of all that `Esm2` takes."""
    return config.tensor_shapes() | config.frequency_shapes()


def _check_frequencies(config: Esm2Config, tensors: Mapping[str, torch.Tensor], path: Path) -> None:
    for name in config.frequency_shapes():
        exact = tensors[name].float()
        if not (exact.isfinite() & (exact >= 0)).all():
            raise BundleError(
                f"{path}: tensor {name!r} holds numbers that are negative, infinite or none (NaN): "
                "rotary positions turn by no such angle. Get the file again."
            )

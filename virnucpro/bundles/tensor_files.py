"""Tensors of published checkpoints, rewritten as safetensors."""

from collections.abc import Mapping
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import save_file

from virnucpro.errors import BundleError

__all__ = ["write_tensors"]


def write_tensors(path: Path, tensors: Mapping[str, torch.Tensor]) -> None:
    """Write safetensors; each tensor keeps its type.

    Raises
    ------
    BundleError
        When it cannot be written, a full disk included.
    """
    own = {name: tensor.contiguous() for name, tensor in tensors.items()}
    try:
        save_file(own, path)
    except (OSError, SafetensorError) as error:
        raise BundleError(
            f"{path}: cannot be written ({error}). See to the disk, and repeat the command."
        ) from None

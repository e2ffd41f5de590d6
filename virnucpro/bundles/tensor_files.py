"""Tensors of published checkpoints, rewritten as safetensors."""

from collections.abc import Mapping
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import save_file

from virnucpro.errors import BundleError

__all__ = ["write_tensors"]


def write_tensors(path: Path, tensors: Mapping[str, torch.Tensor]) -> None:
    """Write safetensors; each tensor keeps its type, and the file the mode of any new one.

    Raises
    ------
    BundleError
        When it cannot be written, a full disk included.
    """
    own = {name: tensor.contiguous() for name, tensor in tensors.items()}
    try:
        # save_file puts another file in its place, which is its owner's alone
        path.touch()
        mode = path.stat().st_mode
        save_file(own, path)
        path.chmod(mode)
    except (OSError, SafetensorError) as error:
        raise BundleError(
            f"{path}: cannot be written ({error}). See to the disk, and repeat the command."
        ) from None

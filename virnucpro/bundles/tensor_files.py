"""Published checkpoints, opened without running what they hold, and rewritten as safetensors."""

import pickle
import re
import warnings
import zipfile
from argparse import Namespace
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import torch
from safetensors import SafetensorError
from safetensors.torch import save_file

from virnucpro.encoders.weights import read_safetensors
from virnucpro.errors import BundleError

__all__ = ["read_fair_esm", "read_state_dict", "write_tensors"]

_FAIRSEQ_PREFIXES: Final = ("encoder.", "sentence_encoder.")


def read_state_dict(path: Path) -> dict[str, torch.Tensor]:
    """Read a state dict: safetensors, or what ``torch.save`` made of it.

    Raises
    ------
    BundleError
        When the file cannot be read, or holds anything but tensors by name; nothing of it has run.
    """
    if path.suffix == ".safetensors":
        return read_safetensors(path)
    return _tensors(_load(path), path)


def read_fair_esm(path: Path) -> dict[str, torch.Tensor]:
    """Read the tensors of a fair-esm checkpoint, by the names of fair-esm's own module.

    Raises
    ------
    BundleError
        As `read_state_dict`; and when it is of another format.
    """
    content = _load(path)
    if not isinstance(content, dict) or "model" not in content:
        raise BundleError(
            f"{path}: is no fair-esm checkpoint, which holds 'cfg' and 'model'. "
            "Give an esm2_*.pt file."
        )
    return {_bare(name): tensor for name, tensor in _tensors(content["model"], path).items()}


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


def _load(path: Path) -> object:
    """Let torch rebuild tensors and plain data, fair-esm's Namespace of settings, nothing else."""
    try:
        with torch.serialization.safe_globals([Namespace]), warnings.catch_warnings():
            # torch asks users to report odd pickles to it
            warnings.filterwarnings("ignore", "Detected pickle protocol", UserWarning)
            # only archives can be mapped; the format before PyTorch 1.6 is read whole
            return torch.load(
                path, map_location="cpu", weights_only=True, mmap=zipfile.is_zipfile(path)
            )
    except pickle.UnpicklingError as error:
        raise BundleError(
            f"{path}: is refused, and nothing of it was run ({_refusal(error)}). A checkpoint "
            "holds tensors and plain settings alone: get the file from its publisher again."
        ) from None
    except Exception as error:  # noqa: BLE001 - damaged pickles and archives raise nearly anything
        raise BundleError(
            f"{path}: cannot be read as a checkpoint ({_first_line(error)}). Get the file again."
        ) from None


def _refusal(error: Exception) -> str:
    """Say what it names, without torch's own advice, which is to load it without the guard."""
    named = re.search(r"GLOBAL ([\w.]+)", str(error))
    return f"it names {named[1]}" if named else "it is no plain pickle"


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0]


def _tensors(content: object, path: Path) -> dict[str, torch.Tensor]:
    if not isinstance(content, dict) or not content:
        raise BundleError(f"{path}: holds no tensors by name. Get the file again.")
    for name, tensor in content.items():
        if not isinstance(name, str) or not isinstance(tensor, torch.Tensor):
            raise BundleError(f"{path}: holds {name!r}, which is no tensor. Get the file again.")
    return content


def _bare(name: str) -> str:
    for prefix in _FAIRSEQ_PREFIXES:
        name = name.removeprefix(prefix)
    return name

"""Files that ``torch.save`` wrote, read without running anything that they hold."""

import re
import warnings
import zlib
from argparse import Namespace
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from pickle import UnpicklingError
from typing import TypeGuard
from zipfile import ZIP_STORED, BadZipFile, ZipFile, is_zipfile

import torch

from virnucpro.encoders.shapes import Shapes
from virnucpro.encoders.weights.fill import read_safetensors
from virnucpro.encoders.weights.safetensors_header import read_shapes
from virnucpro.errors import BundleError

__all__ = ["is_plain_tensor", "read_pickle", "read_state_dict", "require_intact", "shapes_in"]


def read_pickle(path: Path) -> object:
    """Let torch rebuild tensors and plain data, fair-esm's Namespace of settings, nothing else.

    Tensors are mapped, not read; the format before PyTorch 1.6, which is no archive, is read whole.

    Raises
    ------
    BundleError
        When it cannot be read, or holds anything else; nothing of it has run.
    """
    archived = is_zipfile(path)
    if archived:
        with _archive(path) as archive:
            _require_stored(archive, path)
    try:
        with torch.serialization.safe_globals([Namespace]), warnings.catch_warnings():
            # torch asks users to report odd pickles to it
            warnings.filterwarnings("ignore", "Detected pickle protocol", UserWarning)
            return torch.load(path, map_location="cpu", weights_only=True, mmap=archived)
    except UnpicklingError as error:
        raise BundleError(
            f"{path}: is refused, and nothing of it was run ({_refusal(error)}). A checkpoint "
            "holds tensors and plain settings alone. Get the file again, from its publisher."
        ) from None
    except Exception as error:  # noqa: BLE001 - damaged pickles and archives raise nearly anything
        raise BundleError(
            f"{path}: cannot be read as a checkpoint ({_first_line(error)}). Get the file again."
        ) from None


def read_state_dict(path: Path) -> dict[str, torch.Tensor]:
    """Read a state dict: safetensors, or what ``torch.save`` made of it.

    Raises
    ------
    BundleError
        When the file cannot be read, or holds anything but tensors by name; nothing of it has run.
    """
    if path.suffix == ".safetensors":
        return read_safetensors(path)
    content = read_pickle(path)
    if not isinstance(content, Mapping) or not content:
        raise BundleError(f"{path}: holds no tensors by name. Get the file again.")
    for name, tensor in content.items():
        if not isinstance(name, str) or not is_plain_tensor(tensor):
            raise BundleError(f"{path}: holds {name!r}, which is no tensor. Get the file again.")
    return dict(content)


def is_plain_tensor(value: object) -> TypeGuard[torch.Tensor]:
    """Say whether it is a tensor with a number in each place: none that is sparse, none on meta."""
    return (
        isinstance(value, torch.Tensor)
        and value.layout == torch.strided
        and value.device.type == "cpu"
    )


def shapes_in(path: Path) -> Shapes:
    """Give name and shape of the tensors of a state dict; no number of safetensors is read.

    Raises
    ------
    BundleError
        As `read_state_dict`.
    """
    if path.suffix == ".safetensors":
        return read_shapes(path)
    return {name: tuple(tensor.shape) for name, tensor in read_state_dict(path).items()}


def require_intact(path: Path) -> None:
    """Hold every part of an archive against its checksum, which torch's own reader does not.

    It reads all of the file, and no more than that: to be done once, where a job is made.

    Raises
    ------
    BundleError
        When the file was changed after it was written, is no zip archive, or one that torch.save
        does not write.
    """
    with _archive(path) as archive:
        _require_stored(archive, path)
        damaged = archive.testzip()
    if damaged is not None:
        raise BundleError(
            f"{path}: is damaged: {damaged} in it is not what its checksum says. Get the file "
            "again."
        )


@contextmanager
def _archive(path: Path) -> Iterator[ZipFile]:
    """Open an archive; what goes wrong while it is open is an error of the file."""
    try:
        with ZipFile(path) as archive:
            yield archive
    except BadZipFile as error:
        raise BundleError(
            f"{path}: is no archive of torch.save ({error}): it is damaged, or in the format "
            "before PyTorch 1.6, which is not read here. Get the file again, or save it again with "
            "a newer PyTorch."
        ) from error
    except (OSError, RuntimeError, ValueError, EOFError, zlib.error) as error:
        raise BundleError(
            f"{path}: cannot be read as a checkpoint ({error}). Get the file again."
        ) from error


def _require_stored(archive: ZipFile, path: Path) -> None:
    """Refuse parts that are compressed or lie over each other, by which a small file holds much."""
    parts = archive.infolist()
    if any(part.filename.endswith("/constants.pkl") for part in parts):
        raise BundleError(
            f"{path}: is a TorchScript archive, which contains program code. Give a checkpoint "
            "that torch.save wrote of a state dict."
        )
    squeezed = next((part for part in parts if part.compress_type != ZIP_STORED), None)
    if squeezed is not None:
        raise BundleError(
            f"{path}: {squeezed.filename} in it is compressed, which torch.save does not do. Get "
            "the file again, from its publisher."
        )
    held, size = sum(part.file_size for part in parts), path.stat().st_size
    if held > size:
        raise BundleError(
            f"{path}: is said to hold {held:,} bytes, and has {size:,}. Get the file again, from "
            "its publisher."
        )


def _refusal(error: Exception) -> str:
    """Say what it names, without torch's own advice, which is to load it without the guard."""
    named = re.search(r"GLOBAL ([\w.]+)", str(error))
    return f"it names {named[1]}" if named else "it is no plain pickle"


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0]

"""Read files of ``torch.save`` without executing code in these files."""

import re
import warnings
import zlib
from argparse import Namespace
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from pickle import UnpicklingError
from zipfile import ZIP_STORED, BadZipFile, ZipFile

import torch

from virnucpro.encoders.weights.shapes import Shapes, read_shapes, stored_tensors
from virnucpro.errors import BundleError


def read_pickle(path: Path) -> object:
    """Return the content of a file that torch.save wrote.

    The file may contain tensors, plain data and fair-esm's Namespace.

    Tensors are memory-mapped. Files in the format before PyTorch 1.6, which are not zip archives,
    are refused.

    Raises
    ------
    BundleError
        If the file cannot be read, or contains other objects. Code in the file is not executed.
    """
    with _archive(path):
        pass
    try:
        with torch.serialization.safe_globals([Namespace]), warnings.catch_warnings():
            # hide torch's request to report unusual pickles
            warnings.filterwarnings("ignore", "Detected pickle protocol", UserWarning)
            return torch.load(path, map_location="cpu", weights_only=True, mmap=True)
    except UnpicklingError as error:
        # torch's own message is hidden: it advises to load the file without protection
        named = re.search(r"GLOBAL ([\w.]+)", str(error))
        reason = f"it refers to {named[1]}" if named else "it is not a plain pickle"
        raise BundleError(
            f"{path}: refused, because {reason}; no code of the file ran. A checkpoint contains "
            "tensors and plain settings only. Get the file again from its publisher."
        ) from None
    except Exception as error:  # noqa: BLE001 - damaged pickles and archives raise nearly anything
        raise BundleError(
            f"{path}: cannot be read as a checkpoint ({str(error).partition(chr(10))[0]}). "
            "Get the file again."
        ) from None


def read_state_dict(path: Path) -> dict[str, torch.Tensor]:
    """Return the tensors in a safetensors file or in a state dict of ``torch.save``, by name.

    Raises
    ------
    BundleError
        If the file cannot be read, or contains anything but named tensors. Code in the file is not
        executed.
    """
    if path.suffix == ".safetensors":
        return stored_tensors(path, "pt")
    return named_tensors(read_pickle(path), path)


def named_tensors(content: object, path: Path) -> dict[str, torch.Tensor]:
    """Return the content of a file as a dict of dense tensors by name.

    Raises
    ------
    BundleError
        If the content is anything else, such as a sparse tensor or a tensor without data.
    """
    if not isinstance(content, Mapping) or not content:
        raise BundleError(f"{path}: contains no named tensors. Get the file again.")
    for name, tensor in content.items():
        is_plain = (
            isinstance(tensor, torch.Tensor)
            and tensor.layout == torch.strided
            and tensor.device.type == "cpu"
        )
        if not isinstance(name, str) or not is_plain:
            raise BundleError(
                f"{path}: the entry {name!r:.200} is not a plain named tensor. Get the file again."
            )
    return dict(content)


def shapes_in(path: Path) -> Shapes:
    """Return the shape of each tensor in a file by name; of safetensors, read only the header.

    Raises
    ------
    BundleError
        If the file cannot be read, or contains anything but named tensors.
    """
    if path.suffix == ".safetensors":
        return read_shapes(path)
    return {name: tuple(tensor.shape) for name, tensor in read_state_dict(path).items()}


def require_intact(path: Path) -> None:
    """Verify the checksum of each part of a torch.save archive; torch's reader ignores it.

    This function reads the whole file: call it once, when a job is created.

    Raises
    ------
    BundleError
        If the file is damaged, is not a zip archive, or was not written by torch.save.
    """
    with _archive(path) as archive:
        damaged = archive.testzip()
    if damaged is not None:
        raise BundleError(
            f"{path}: is damaged: the checksum of its part {damaged} is wrong. Get the file again."
        )


@contextmanager
def _archive(path: Path) -> Iterator[ZipFile]:
    """Open an archive of torch.save; raise BundleError if the file cannot be opened or read.

    TorchScript is refused because it contains code. Compressed and overlapping parts are refused
    because they can expand a small file to terabytes.
    """
    try:
        with ZipFile(path) as archive:
            parts = archive.infolist()
            if any(part.filename.endswith("/constants.pkl") for part in parts):
                raise BundleError(
                    f"{path}: is a TorchScript archive, which contains program code. Give a "
                    "state dict that torch.save wrote."
                )
            compressed = any(part.compress_type != ZIP_STORED for part in parts)
            if compressed or sum(part.file_size for part in parts) > path.stat().st_size:
                raise BundleError(
                    f"{path}: is compressed or has overlapping parts, unlike files of torch.save. "
                    "Get the file again from its publisher."
                )
            yield archive
    except BadZipFile as error:
        raise BundleError(
            f"{path}: is not an archive of torch.save ({error}): it is damaged, or has the format "
            "before PyTorch 1.6. Get the file again, or save it with a newer PyTorch."
        ) from error
    except (OSError, RuntimeError, ValueError, EOFError, zlib.error) as error:
        raise BundleError(
            f"{path}: cannot be read as a checkpoint ({error}). Get the file again."
        ) from error

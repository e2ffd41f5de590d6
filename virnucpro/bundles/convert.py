"""Convert published files to a bundle's files: safetensors, and encoders.

Published files may be malicious. Therefore an `Isolate` function converts these files in a separate
process with limits of memory and time.
"""

import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypeVar

from virnucpro.classifier.head import head_shapes, layer_sizes
from virnucpro.encoders.base import EncoderSpec
from virnucpro.encoders.config import read_json
from virnucpro.encoders.dnabert_s.config import DnabertSConfig, DnabertSFiles
from virnucpro.encoders.registry import load_encoder, open_spec
from virnucpro.encoders.weights.shapes import require_layers
from virnucpro.errors import BundleError, WorkerError

if TYPE_CHECKING:
    import torch

T = TypeVar("T")

_HEAD: Final = "head.safetensors"
_NUCLEOTIDE: Final = "nucleotide.safetensors"
_PROTEIN: Final = "protein.safetensors"
_TOKENIZER: Final = "tokenizer.json"

_START_BYTES: Final = 4 << 30
_START_SECONDS: Final = 300.0
"""Limits of memory and time for the process that converts a small file."""
_BYTES_PER_SECOND: Final = 1_000_000
"""Minimum throughput, from which the time limit is calculated; a busy network file system is
faster.
"""


Isolate: TypeAlias = Callable[..., Any]
"""Calls ``function(*arguments)`` in a process with limits: `virnucpro.runtime.isolation`.

A VirnucproError of the function is raised unchanged. A crash or an exceeded limit raises
WorkerError.
"""


def call_directly(function: Callable[..., T], *arguments: object, **_limits: float) -> T:
    """Call `function` in this process, ignore the limits, and return the result."""
    return function(*arguments)


def convert_isolated(
    isolate: Isolate, source: Path, convert: Callable[..., T], *arguments: object
) -> T:
    """Call the function `convert` through `isolate`, and return the result of `convert`.

    The limits of memory and time grow with the size of `source`.

    Parameters
    ----------
    isolate
        Function that calls the conversion; see `Isolate`.
    source
        The file that is converted.
    convert, arguments
        The conversion function and its arguments.

    Raises
    ------
    BundleError
        If `convert` raises it, or its process crashes or exceeds a limit.
    """
    size = source.stat().st_size if source.exists() else 0
    limits = {
        "n_bytes": _START_BYTES + 3 * size,
        "seconds": _START_SECONDS + size // _BYTES_PER_SECOND,
    }
    try:
        result: T = isolate(convert, *arguments, **limits)
    except WorkerError as error:
        raise BundleError(
            f"{source}: the process that reads it failed: {error}. The file is damaged or "
            "malicious, or memory or disk space ran out. Get the file again from its publisher."
        ) from None
    return result


def convert_encoder(
    isolate: Isolate, architecture: str, name: str, paths: Sequence[Path], folder: Path
) -> EncoderSpec:
    """Convert an encoder's published files into `folder`; return the encoder.

    Parameters
    ----------
    isolate
        Function that calls the conversion; see `Isolate`.
    architecture
        ``esm2`` or ``dnabert_s``.
    name
        Name of the encoder.
    paths
        The ESM-2 checkpoint, or the three files of `DnabertSFiles`.
    folder
        Output folder.

    Raises
    ------
    BundleError
        As `convert_isolated`.
    """
    if architecture == "esm2":
        (weights,) = paths
        return convert_isolated(isolate, weights, convert_esm2, name, weights, folder)
    files = DnabertSFiles(*paths)
    return convert_isolated(isolate, files.weights, convert_dnabert_s, name, files, folder)


def convert_esm2(name: str, checkpoint: Path, folder: Path) -> EncoderSpec:
    """Convert a fair-esm checkpoint of ESM-2 into `folder`; return the encoder.

    Raises
    ------
    BundleError
        If the file is not such a checkpoint, or a tensor is missing or unknown. Code in the file
        is not executed.
    """
    from virnucpro.encoders.esm2.encoder import needed_tensors

    spec = open_spec(checkpoint)
    if spec.architecture != "esm2":
        raise BundleError(f"{checkpoint}: is not an ESM-2 checkpoint. Give an esm2_*.pt file.")
    write_tensors(folder / _PROTEIN, needed_tensors(checkpoint))
    return _checked(replace(spec, name=name, folder=folder, files={"weights": _PROTEIN}))


def convert_dnabert_s(name: str, published: DnabertSFiles, folder: Path) -> EncoderSpec:
    """Convert DNABERT-S's three published files into `folder`; return the encoder.

    Parameters
    ----------
    name
        Name of the encoder.
    published
        The files. The suffix of the weights file (``.safetensors`` or other) selects its format.
    folder
        Output folder.

    Raises
    ------
    BundleError
        If a file cannot be read, or the files do not fit together. Code in them is not executed.
    """
    from virnucpro.encoders.dnabert_s.encoder import needed_tensors

    config = DnabertSConfig.read(read_json(published.settings), published.settings)
    tensors = needed_tensors(published.weights)
    require_layers(config.num_hidden_layers, len(tensors), published.settings)
    write_tensors(folder / _NUCLEOTIDE, tensors)
    shutil.copyfile(published.tokenizer, folder / _TOKENIZER)
    files = {"weights": _NUCLEOTIDE, "tokenizer": _TOKENIZER}
    return _checked(config.spec(name, folder, files))


def convert_head(classifier: Path, folder: Path) -> str:
    """Convert a published classifier into a file in `folder`; return the name of the file.

    Raises
    ------
    BundleError
        If the file is not a published classifier, its layers do not fit together, or a number in
        it is infinite or NaN. Code in the file is not executed.
    """
    import torch

    from virnucpro.bundles.pickled_head import read_pickled_head
    from virnucpro.encoders.weights.check import check_tensors

    tensors = read_pickled_head(classifier)
    shapes = {name: tuple(tensor.shape) for name, tensor in tensors.items()}
    wanted = head_shapes(layer_sizes(shapes, classifier))
    check_tensors(wanted, tensors, classifier, (), torch.float32)
    write_tensors(folder / _HEAD, tensors)
    return _HEAD


def write_tensors(path: Path, tensors: "Mapping[str, torch.Tensor]") -> None:
    """Write tensors to a safetensors file; each tensor keeps its dtype.

    Raises
    ------
    BundleError
        If the file cannot be written, for example on a full disk.
    """
    from safetensors import SafetensorError
    from safetensors.torch import save_file

    contiguous = {name: tensor.contiguous() for name, tensor in tensors.items()}
    try:
        # save_file replaces `path` by a file of mode 0600: restore the mode that the umask gives
        path.touch()
        mode = path.stat().st_mode
        save_file(contiguous, path)
        path.chmod(mode)
    except (OSError, SafetensorError) as error:
        raise BundleError(
            f"{path}: cannot be written ({error}). Check the disk and rerun the command."
        ) from None


def _checked(spec: EncoderSpec) -> EncoderSpec:
    """Return the converted encoder after a check of names and shapes of its tensors."""
    load_encoder(spec, "meta")
    return spec

"""Published files into a bundle's own: safetensors, and the manifest's entry of each encoder.

torch is imported by what converts: a command that has nothing to convert does without it.
"""

import shutil
from dataclasses import asdict, replace
from pathlib import Path
from typing import Final

from virnucpro.bundles.manifest import EncoderEntry
from virnucpro.encoders.base import EncoderSpec
from virnucpro.encoders.dnabert_s_config import DnabertSFiles, read_settings
from virnucpro.encoders.registry import load_encoder, open_spec
from virnucpro.encoders.shapes import require_layers
from virnucpro.errors import BundleError

__all__ = ["HEAD", "TOKENIZER", "convert_dnabert_s", "convert_esm2", "convert_head"]

HEAD: Final = "head.safetensors"
TOKENIZER: Final = "tokenizer.json"
_NUCLEOTIDE: Final = "nucleotide.safetensors"
_PROTEIN: Final = "protein.safetensors"


def convert_esm2(name: str, checkpoint: Path, folder: Path) -> EncoderEntry:
    """Convert a fair-esm checkpoint of ESM-2 into `folder`.

    Raises
    ------
    BundleError
        When it is no such checkpoint, lacks a tensor or has one too many; nothing of it has run.
    """
    from virnucpro.bundles.tensor_files import write_tensors
    from virnucpro.encoders.esm2 import needed_tensors

    spec = open_spec(checkpoint)
    if spec.architecture != "esm2":
        raise BundleError(f"{checkpoint}: is no ESM-2 checkpoint. Give an esm2_*.pt file.")
    write_tensors(folder / _PROTEIN, needed_tensors(checkpoint))
    return _entry(replace(spec, name=name, folder=folder, files={"weights": _PROTEIN}))


def convert_dnabert_s(name: str, published: DnabertSFiles, folder: Path) -> EncoderEntry:
    """Convert DNABERT-S's three published files into `folder`.

    Parameters
    ----------
    name
        What to call it.
    published
        Where they lie; their names make no difference, but for the ending of the weights'.
    folder
        Where to write.

    Raises
    ------
    BundleError
        When one of them cannot be read, or they do not fit together; nothing of them has run.
    """
    from virnucpro.bundles.tensor_files import write_tensors
    from virnucpro.encoders.dnabert_s import needed_tensors

    config, tensors = read_settings(published.settings), needed_tensors(published.weights)
    require_layers(config.n_layers, len(tensors), published.settings)
    write_tensors(folder / _NUCLEOTIDE, tensors)
    shutil.copyfile(published.tokenizer, folder / TOKENIZER)
    files = {"weights": _NUCLEOTIDE, "tokenizer": TOKENIZER}
    return _entry(
        EncoderSpec(
            name, config.architecture, config.view, config.dim, folder, files, asdict(config)
        )
    )


def convert_head(classifier: Path, folder: Path) -> None:
    """Convert a published classifier into `folder`.

    Raises
    ------
    BundleError
        When it is no published classifier, or a number of it is infinite or none; nothing of it
        has run.
    """
    import torch

    from virnucpro.bundles.pickled_head import read_pickled_head
    from virnucpro.bundles.tensor_files import write_tensors
    from virnucpro.encoders.weights import check

    tensors = read_pickled_head(classifier)
    shapes = {name: tuple(tensor.shape) for name, tensor in tensors.items()}
    check(shapes, tensors, classifier, (), torch.float32)
    write_tensors(folder / HEAD, tensors)


def _entry(spec: EncoderSpec) -> EncoderEntry:
    """Describe an encoder once all of its tensors have found their place, names and shapes."""
    load_encoder(spec, "meta")
    return EncoderEntry(
        spec.name, spec.architecture, spec.view, spec.dim, dict(spec.files), dict(spec.config)
    )

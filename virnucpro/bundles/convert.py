"""Published files into a bundle's own: safetensors, and the manifest's entry of each encoder.

torch is imported by what converts: a command that has nothing to convert does without it.
"""

import json
import shutil
from dataclasses import asdict
from pathlib import Path
from typing import Final

from virnucpro.bundles.manifest import EncoderEntry
from virnucpro.encoders.registry import EncoderSpec, load_encoder, open_spec
from virnucpro.errors import BundleError

__all__ = ["HEAD", "TOKENIZER", "convert_dnabert_s", "convert_esm2", "convert_head"]

HEAD: Final = "head.safetensors"
TOKENIZER: Final = "tokenizer.json"
_NUCLEOTIDE: Final = "nucleotide.safetensors"
_PROTEIN: Final = "protein.safetensors"

_UNUSED: Final = {"esm2": ("lm_head.", "contact_head."), "dnabert_s": ("pooler.", "cls.")}
"""Parts of the published modules that no embedding needs."""


def convert_esm2(name: str, checkpoint: Path, folder: Path) -> EncoderEntry:
    """Convert a fair-esm checkpoint of ESM-2 into `folder`.

    Raises
    ------
    BundleError
        When it is no such checkpoint, lacks a tensor or has one too many; nothing of it has run.
    """
    from virnucpro.bundles.tensor_files import write_tensors
    from virnucpro.encoders.esm2_checkpoint import read_checkpoint
    from virnucpro.encoders.weights import without

    spec = open_spec(checkpoint)
    if spec.architecture != "esm2":
        raise BundleError(f"{checkpoint}: is no ESM-2 checkpoint. Give an esm2_*.pt file.")
    _, tensors = read_checkpoint(checkpoint)
    write_tensors(folder / _PROTEIN, without(tensors, _UNUSED["esm2"]))
    return _entry(
        EncoderSpec(
            name, "esm2", "protein", spec.dim, folder, {"weights": _PROTEIN}, dict(spec.config)
        )
    )


def convert_dnabert_s(
    name: str, config: Path, tokenizer: Path, weights: Path, folder: Path
) -> EncoderEntry:
    """Convert DNABERT-S's three published files into `folder`.

    Parameters
    ----------
    name
        What to call it.
    config, tokenizer, weights
        config.json, tokenizer.json, pytorch_model.bin or model.safetensors.
    folder
        Where to write.

    Raises
    ------
    BundleError
        When one of them cannot be read, or they do not fit together; nothing of them has run.
    """
    from virnucpro.bundles.tensor_files import write_tensors
    from virnucpro.encoders.dnabert_s import DnabertSConfig
    from virnucpro.encoders.pickles import read_state_dict
    from virnucpro.encoders.weights import without

    try:
        settings = json.loads(config.read_bytes())
    except (ValueError, RecursionError) as error:
        raise BundleError(f"{config}: is no JSON ({error}). Get the file again.") from None
    if not isinstance(settings, dict):
        raise BundleError(f"{config}: holds no settings by name. Get the file again.")
    size = DnabertSConfig.read(settings, config)
    tensors = {key.removeprefix("bert."): t for key, t in read_state_dict(weights).items()}
    write_tensors(folder / _NUCLEOTIDE, without(tensors, _UNUSED["dnabert_s"]))
    shutil.copyfile(tokenizer, folder / TOKENIZER)
    return _entry(
        EncoderSpec(
            name,
            "dnabert_s",
            "nucleotide",
            size.hidden_size,
            folder,
            {"weights": _NUCLEOTIDE, "tokenizer": TOKENIZER},
            asdict(size),
        )
    )


def convert_head(classifier: Path, folder: Path) -> None:
    """Convert a published classifier into `folder`.

    Raises
    ------
    BundleError
        When it is no published classifier; nothing of it has run.
    """
    from virnucpro.bundles.pickled_head import read_pickled_head
    from virnucpro.bundles.tensor_files import write_tensors

    write_tensors(folder / HEAD, read_pickled_head(classifier))


def _entry(spec: EncoderSpec) -> EncoderEntry:
    """Describe an encoder once all of its tensors have found their place, names and shapes."""
    load_encoder(spec, "meta")
    return EncoderEntry(
        spec.name, spec.architecture, spec.view, spec.dim, dict(spec.files), dict(spec.config)
    )

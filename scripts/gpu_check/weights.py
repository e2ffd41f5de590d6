"""Encoders and bundles with random weights, written once into the working folder."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
from gpu_check.random_weights import write_random_encoder
from safetensors.numpy import save_file

from virnucpro.bundles.bundle import open_bundle, save_bundle
from virnucpro.bundles.manifest import Bundle, encoder_entry
from virnucpro.classifier.head import head_shapes
from virnucpro.encoders.base import EncoderSpec


def random_encoder(work: Path, name: str) -> EncoderSpec:
    """Write an encoder with random weights once; ``mini-deep`` is that of this bundle."""
    if name == "mini-deep":
        return open_bundle("mini-deep").encoders[0]
    folder, settings = work / name, work / f"{name}.json"
    if not settings.is_file():
        folder.mkdir(parents=True, exist_ok=True)
        settings.write_text(json.dumps(encoder_entry(write_random_encoder(folder, name))))
    return EncoderSpec(folder=folder, **json.loads(settings.read_text()))


def random_bundle(work: Path, nucleotide: str, protein: str) -> Path:
    """Write a bundle of two encoders and a random head once; its weights are symbolic links."""
    folder = work / f"bundle-{nucleotide}-{protein}"
    if (folder / "bundle.json").is_file():
        return folder
    folder.mkdir(exist_ok=True)
    specs = [random_encoder(work, name) for name in (nucleotide, protein)]
    head = folder / "head.safetensors"
    _write_head(head, sum(spec.dim for spec in specs))
    bundle = Bundle(
        path=folder,
        name=folder.name,
        version="1",
        description="random weights",
        encoders=tuple(_linked(folder, spec) for spec in specs),
        head=head,
        window=500,
        tiling="published",
        genetic_code=1,
        labels=("others", "virus"),
        thresholds={"viral": 0.5, "non_viral": 0.5},
    )
    return save_bundle(bundle).path


def _linked(folder: Path, spec: EncoderSpec) -> EncoderSpec:
    """Link an encoder's files into a bundle; return the encoder of the bundle."""
    files = {}
    for role in spec.files:
        source = spec.file(role)
        files[role] = f"{spec.view}{source.suffix}"
        (folder / files[role]).unlink(missing_ok=True)
        (folder / files[role]).symlink_to(source)
    return replace(spec, folder=folder, files=files)


def _write_head(path: Path, dim: int) -> None:
    dice = np.random.default_rng(3)
    tensors = {
        name: dice.normal(0, 0.05, shape).astype(np.float32)
        for name, shape in head_shapes((dim, 512, 2)).items()
    }
    for name, tensor in tensors.items():
        if name.endswith(("running_var", "norm.weight")):
            tensor[:] = 1
    save_file(tensors, path)

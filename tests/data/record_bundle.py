"""A bundle that scores pieces of records, too, in the time of `mini`."""

import shutil
from dataclasses import replace
from pathlib import Path

from safetensors.numpy import load_file, save_file

from virnucpro.bundles.bundle import open_bundle, save_bundle
from virnucpro.bundles.manifest import Bundle, Classifier
from virnucpro.encoders.genes.inputs import FACTS

CALIBRATION = {
    "lengths": [500.0, 5000.0],
    "record": [0.4, 0.9],
    "windows": [0.6, 0.1],
    "offset": [0.0, -0.2],
    "limit": 8.0,
}


def save_record_bundle(folder: Path, piece: int = 2_000) -> Bundle:
    """Save a bundle whose pieces are scored by the encoder and the head of `mini`.

    The last features of a piece stand for facts: the head does not read them.
    """
    mini = open_bundle("mini")
    assert mini.head is not None
    folder.mkdir(parents=True)
    shutil.copy(mini.head, folder / "head.safetensors")
    tensors = load_file(mini.head)
    for name in ("input.mean", "input.scale", "hidden.0.weight"):
        tensors[name] = tensors[name][..., : -len(FACTS)].copy()
    save_file(tensors, folder / "record.safetensors")
    encoders = tuple(replace(spec, folder=folder) for spec in mini.encoders)
    return save_bundle(
        replace(
            mini,
            path=folder,
            name="records",
            encoders=encoders,
            head=folder / "head.safetensors",
            record=Classifier(encoders, folder / "record.safetensors", ""),
            piece=piece,
            calibration={**(mini.calibration or {}), "records": CALIBRATION},
            metrics={},
            provenance={},
        )
    )

"""A tiny bundle, a way to edit its manifest, and the files of a small published bundle."""

import json
import shutil

import pytest
import torch
from safetensors.torch import save_file

from virnucpro.bundles.bundle import save_bundle
from virnucpro.bundles.manifest import Bundle
from virnucpro.classifier.head import head_shapes
from virnucpro.encoders.dnabert_s.config import DnabertSConfig
from virnucpro.encoders.esm2.config import Esm2Config

ENCODERS = {"nucleotide": DnabertSConfig(9, 8, 1, 2, 16), "protein": Esm2Config(1, 4, 2)}


@pytest.fixture(scope="session", autouse=True)
def one_thread(one_torch_thread):
    pass


@pytest.fixture
def bundle_folder(written_bundle, tmp_path):
    """A copy of the tiny bundle, which a test may change."""
    return shutil.copytree(written_bundle, tmp_path / "tiny")


@pytest.fixture(scope="session")
def written_bundle(tmp_path_factory):
    """Weights of zeros, an empty tokeniser, and a head for vectors of 12 numbers."""
    folder = tmp_path_factory.mktemp("tiny")
    encoders = []
    for name, config in ENCODERS.items():
        tensors = {tensor: torch.zeros(shape) for tensor, shape in config.tensor_shapes().items()}
        save_file(tensors, folder / f"{name}.safetensors")
        files = {"weights": f"{name}.safetensors"}
        files |= {"tokenizer": "tokenizer.json"} if name == "nucleotide" else {}
        encoders.append(config.spec(name[0], folder, files))
    (folder / "tokenizer.json").write_text("{}")
    head = {name: torch.ones(shape) for name, shape in head_shapes((12, 3, 2)).items()}
    save_file(head, folder / "head.safetensors")
    save_bundle(
        Bundle(
            path=folder,
            name="tiny",
            version="1.0",
            description="for tests",
            encoders=tuple(encoders),
            head=folder / "head.safetensors",
            window=500,
            tiling="even",
            genetic_code=11,
            labels=("others", "virus"),
            thresholds={"viral": 0.6, "non_viral": 0.4},
            metrics={"auroc": 0.5},
            provenance={"seed": 1},
        ),
    )
    return folder


@pytest.fixture
def edit(bundle_folder):
    """Change the tiny bundle's manifest by a function of its content."""

    def apply(change):
        path = bundle_folder / "bundle.json"
        content = json.loads(path.read_text())
        change(content)
        path.write_text(json.dumps(content))
        return str(bundle_folder)

    return apply


@pytest.fixture
def files(published_files):
    return published_files

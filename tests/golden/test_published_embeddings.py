"""Shapes and order of the embeddings, compared with those of the published tool."""

import json

import h5py
import numpy as np
import pytest
import torch


@pytest.fixture(scope="module")
def published(shared):
    """Names and vectors from the published tool: merged, nucleotide, protein."""
    folder = shared / "reference" / "published-tool"

    def load(path):
        return torch.load(folder / path, weights_only=True)

    merged = load("test_with_orfs_merged/output_1_merged.pt")
    nucleotide = load("test_with_orfs_nucleotide/output_1_DNABERT_S.pt")
    protein = load("test_with_orfs_protein/output_1_ESM.pt")
    bases = [torch.tensor(entry["mean_representation"]) for entry in nucleotide["data"]]
    return (
        (merged["ids"], merged["data"]),
        dict(zip(nucleotide["nucleotide"], bases, strict=True)),
        dict(zip(protein["proteins"], protein["data"], strict=True)),
    )


@pytest.mark.shared
def test_a_published_vector_joins_nucleotide_and_protein(shared, published):
    from virnucpro.encoders.dnabert_s.config import DnabertSConfig
    from virnucpro.encoders.registry import PUBLISHED

    (names, merged), nucleotide, protein = published
    settings = shared / "reference" / "dnabert-s" / "config.json"
    config = DnabertSConfig.read(json.loads(settings.read_text()), settings)
    widths = config.hidden_size, PUBLISHED["esm2_t36_3B_UR50D"].dim
    assert merged.shape == (4, sum(widths))
    for name, vector in zip(names, merged, strict=True):
        assert (len(nucleotide[name]), len(protein[name])) == widths
        assert torch.equal(vector, torch.cat([nucleotide[name], protein[name].float()]))


@pytest.mark.shared
@pytest.mark.usefixtures("one_process")
def test_embeddings_have_the_published_order_and_shape(shared, published, called, tmp_path):
    from virnucpro.bundles.bundle import open_bundle
    from virnucpro.encoders.registry import load_encoder

    (names, _), *_ = published
    folder = shared / "reference" / "published-tool"
    done = called(
        *("predict", folder / "test_with_orfs.fa", "-o", tmp_path / "run", "-q"),
        *("--bundle", "mini-deep", "--embeddings", "fp32", "--devices", "cpu:1"),
    )
    assert done.returncode == 0, done.stderr
    with h5py.File(tmp_path / "run" / "embeddings.h5") as file:
        assert file["sequence_ids"].asstr()[:].tolist() == names
        found = file["embeddings"][:]
    parts = []
    files = ("test_with_orfs_identified_nucleotide.fa", "test_with_orfs_identified_protein.faa")
    for spec, file in zip(open_bundle("mini-deep").encoders, files, strict=True):
        lines = (folder / file).read_bytes().split()
        assert [line[1:].decode() for line in lines[::2]] == names
        encoder = load_encoder(spec)
        parts.append(encoder.encode(encoder.collate(encoder.tokenise(lines[1::2]))).numpy())
    np.testing.assert_allclose(found, np.concatenate(parts, axis=1), rtol=0, atol=1e-5)

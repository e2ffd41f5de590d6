"""``virnucpro embed`` with other pooling, layers, and limits of length."""

import random
from functools import partial

import h5py
import numpy as np
import pytest
import torch
from cases import slow
from esm.model.esm2 import ESM2
from esm_models import fair_esms_states

pytestmark = pytest.mark.usefixtures("one_process")

LENGTHS = [3, 50, 120, 7, 300, 50]


@pytest.fixture(scope="module")
def proteins(tmp_path_factory):
    dice = random.Random(3)
    folder = tmp_path_factory.mktemp("input")
    records = ["".join(dice.choices("ACDEFGHIKLMNPQRSTVWY", k=length)) for length in LENGTHS]
    records[5] = records[1]
    for name, part in (("one.faa", records[:4]), ("two.faa", records[4:])):
        (folder / name).write_text("".join(f">p{i}\n{one}\n" for i, one in enumerate(part)))
    return [folder / "one.faa", folder / "two.faa"], records


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory, stand_ins):
    torch.manual_seed(3)
    model = ESM2(num_layers=2, embed_dim=32, attention_heads=4).eval()
    path = tmp_path_factory.mktemp("model") / "esm2_small.pt"
    stand_ins.save_esm2(path, model)
    return path, model


@pytest.fixture
def embed(called, proteins):
    """Return a function that runs `embed`; only a checkpoint is read by a process of its own."""

    def run(folder, *options, encoder="mini-deep/protein", code=0):
        fixed = ("-e", encoder, "--embeddings", "fp32", "-o", folder)
        return called("embed", *proteins[0], *fixed, *options, code=code)

    return run


@pytest.mark.parametrize("devices", ["cpu:1", slow("cpu:2")])
def test_one_vector_per_residue_in_input_order(
    devices, embed, proteins, checkpoint, tmp_path, called, tables, reading_here
):
    options = ("--pooling", "none", "--layer", "1", "--layer", "-1", "--max-length", "200")
    embed(tmp_path / "run", "--devices", devices, *options, encoder=checkpoint[0], code=2)
    with h5py.File(tmp_path / "run" / "embeddings.h5") as file:
        offsets, residues = file["offsets"][:], file["residues"][:]
        assert file["record"][:].tolist() == [1, 2, 3, 4, 1, 2]
        assert file["file"][:].tolist() == [0, 0, 0, 0, 1, 1]
        assert file["files"].asstr()[:].tolist() == ["one.faa", "two.faa"]
        assert file["sequence_ids"].asstr()[:].tolist() == ["p0", "p1", "p2", "p3", "p0", "p1"]
        assert file["status"][:].tolist() == [0, 0, 0, 0, 1, 0]
        assert file.attrs["pooling"] == "none"
        assert file.attrs["layers"].tolist() == [1, 2]
    assert np.diff(offsets).tolist() == [3, 50, 120, 7, 0, 50]
    kept = [one.encode() for one in proteins[1] if len(one) <= 200]
    states = [torch.cat(fair_esms_states(checkpoint[1], one, [1, 2]), dim=1)[1:-1] for one in kept]
    assert np.abs(residues - torch.cat(states).numpy()).max() <= 1e-5
    (refused,) = tables(tmp_path / "run" / "quarantine.tsv")
    assert "too_long" in str(refused)
    assert "300 tokens, more than 200" in str(refused)
    called("verify", tmp_path / "run", code=0)
    with h5py.File(tmp_path / "run" / "embeddings.h5", "r+") as file:
        file["residues"][60, 3] += 1
    assert "the vector of item 2 differs" in called("verify", tmp_path / "run", code=1).stdout
    called("aggregate", tmp_path / "run", code=2)
    called("verify", tmp_path / "run", code=0)


@pytest.mark.parametrize(
    ("options", "cut"),
    [
        (("--max-length", "100", "--long", "truncate"), lambda vectors: vectors),
        slow(("--layer", "0"), None),
    ],
)
def test_a_resume_with_another_value_is_refused(embed, tmp_path, options, cut):
    embed(tmp_path / "run", *options)
    embed(tmp_path / "run", *options, "--resume")
    other = embed(tmp_path / "run", "--pooling", "max", *options, "--resume", code=1)
    assert "pooling was mean and is now max" in other.stderr
    plain = embed(tmp_path / "run", "--resume", code=1)
    assert ("max_length was 100 and is now None" in plain.stderr) == (cut is not None)


@pytest.mark.slow
def test_further_formats_follow_the_choice_of_the_last_command(embed, checkpoint, tmp_path):
    folder = tmp_path / "run"
    chosen = ("--layer", "1", "--layer", "-1")
    embed = partial(embed, folder, *chosen, encoder=checkpoint[0])
    embed("--format", "npy,h5ad,pt", code=0)
    with h5py.File(folder / "embeddings.h5") as file:
        vectors = file["embeddings"][:]
    np.testing.assert_array_equal(np.load(folder / "embeddings.npy"), vectors)
    files = sorted(path.name for path in (folder / "embeddings.pt").iterdir())
    assert files == ["p0%#4.pt", "p0.pt", "p1%#5.pt", "p1.pt", "p2.pt", "p3.pt"]
    content = torch.load(folder / "embeddings.pt" / "p0%#4.pt")
    assert content["label"] == "p0"
    np.testing.assert_array_equal(content["mean_representations"][2].numpy(), vectors[4, 32:])
    embed("--resume")
    assert (folder / "embeddings.npy").exists()
    embed("--resume", "--format", "npy", code=0)
    assert (folder / "embeddings.npy").exists()
    assert not (folder / "embeddings.pt").exists()
    assert not (folder / "embeddings.h5ad").exists()

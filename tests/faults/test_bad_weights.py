"""Row 6: every rank fails at its start, because of unusable weights."""

import json
import math

import pytest
from safetensors.torch import load, save

OUTPUTS = ("predictions.tsv", "tracks/windows.tsv", "missing.tsv", "embeddings.h5")


@pytest.fixture
def error_of(called, few_fasta):
    """Return a function that runs predict with a bundle, and returns its only error."""

    def predict(bundle, folder, *options):
        words = ("predict", few_fasta, "-o", folder, "--bundle", bundle, "--embeddings", *options)
        printed = called(*words, "--devices", "cpu:1", code=1).stderr
        assert "Traceback" not in printed
        _, error = printed.split("virnucpro: error:")
        return error

    return predict


def with_weight(number):
    """Return a function that changes a weight in the content of a file of weights."""

    def change(content):
        tensors = load(content)
        tensors["layers.0.fc1.weight"][0, 0] = number
        return save(tensors)

    return change


def damage(bundle):
    with (bundle / "protein.safetensors").open("r+b") as stream:
        stream.seek(5000)
        stream.write(b"\xff")


@pytest.mark.parametrize(
    ("change", "after"),
    [
        pytest.param(lambda content: content, damage, id="damaged"),
        pytest.param(lambda content: content[:4000], lambda _: None, id="cut short"),
        pytest.param(
            lambda content: content.replace(b"layers.0", b"layers.7"),
            lambda _: None,
            id="other names",
        ),
    ],
)
def test_unusable_weights_are_refused_at_first(change, after, bundle_with, error_of, tmp_path):
    bundle = bundle_with("protein.safetensors", change)
    after(bundle)
    error = error_of(bundle, tmp_path / "run")
    assert str(bundle / "protein.safetensors") in error
    assert "again" in error
    assert not (tmp_path / "run").exists()


def test_weights_that_no_rank_can_load_are_one_clear_error(bundle_with, error_of, tmp_path):
    bundle, folder = bundle_with("protein.safetensors", with_weight(math.nan)), tmp_path / "run"
    error = error_of(bundle, folder)
    assert "all workers (1) failed before the first unit was computed" in error
    assert str(bundle / "protein.safetensors") in error
    assert "rank-0000.log" in error
    assert "Traceback" in (folder / "run" / "logs" / "rank-0000.log").read_text()
    assert not any((folder / name).exists() for name in OUTPUTS)
    assert not list(folder.rglob("*.tmp"))
    ranks = json.loads((folder / "run" / "status.json").read_text())["ranks"]
    assert {rank["state"] for rank in ranks.values()} == {"failed"}


@pytest.mark.slow
def test_weights_that_fp16_cannot_hold_are_refused_at_once(bundle_with, error_of, tmp_path):
    bundle = bundle_with("protein.safetensors", with_weight(7e4))
    error = error_of(bundle, tmp_path / "run", "--precision", "fp16")
    message = "'layers.0.fc1.weight' contains numbers up to 7e+04; the maximum of fp16"
    assert error.count(message) == 1
    assert "Use --precision bf16 or fp32." in error
    ranks = json.loads((tmp_path / "run" / "run" / "status.json").read_text())["ranks"]
    assert {rank["attempt"] for rank in ranks.values()} == {1}

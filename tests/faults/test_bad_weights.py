"""Row 6: every rank fails at its start, because of unusable weights."""

import json

import pytest
from safetensors.torch import load, save

from virnucpro.cli.main import main

pytestmark = pytest.mark.timeout(110)
OUTPUTS = ("predictions.tsv", "windows.tsv", "missing.tsv", "embeddings.h5")


def predict(fasta, bundle, folder, *options):
    """Run predict with a bundle; return its exit code."""
    words = ["predict", fasta, "-o", folder, "--bundle", bundle, "--embeddings", *options]
    return main([*map(str, words), "--devices", "cpu:1"])


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
def test_unusable_weights_are_refused_before_anything_is_made(
    change, after, few_fasta, bundle_with, tmp_path, capsys
):
    bundle = bundle_with("protein.safetensors", change)
    after(bundle)
    assert predict(few_fasta, bundle, tmp_path / "run") == 1
    printed = capsys.readouterr().err
    assert printed.count("virnucpro: error:") == 1
    error = printed[printed.index("virnucpro: error:") :]
    assert str(bundle / "protein.safetensors") in error
    assert "again" in error
    assert "Traceback" not in printed
    assert not (tmp_path / "run").exists()


def test_weights_that_no_rank_can_load_are_one_clear_error(
    few_fasta, bundle_with, tmp_path, capsys
):
    def change(content):
        tensors = load(content)
        tensors["layers.0.fc1.weight"][0, 0] = float("nan")
        return save(tensors)

    bundle = bundle_with("protein.safetensors", change)
    folder = tmp_path / "run"
    assert predict(few_fasta, bundle, folder) == 1
    printed = capsys.readouterr().err
    assert printed.count("virnucpro: error:") == 1
    error = printed[printed.index("virnucpro: error:") :]
    assert "all workers (1) failed before the first unit was computed" in error
    assert str(bundle / "protein.safetensors") in error
    assert "rank-0000.log" in error
    assert "Traceback" not in printed
    assert "Traceback" in (folder / "logs" / "rank-0000.log").read_text()
    assert not any((folder / name).exists() for name in OUTPUTS)
    assert not list(folder.rglob("*.tmp"))
    ranks = json.loads((folder / "status.json").read_text())["ranks"]
    assert {rank["state"] for rank in ranks.values()} == {"failed"}


@pytest.mark.slow
def test_weights_that_fp16_cannot_hold_are_refused_at_once(
    few_fasta, bundle_with, tmp_path, capsys
):
    def change(content):
        tensors = load(content)
        tensors["layers.0.fc1.weight"][0, 0] = 7e4
        return save(tensors)

    bundle = bundle_with("protein.safetensors", change)
    assert predict(few_fasta, bundle, tmp_path / "run", "--precision", "fp16") == 1
    printed = capsys.readouterr().err
    error = printed[printed.index("virnucpro: error:") :]
    assert (
        error.count("'layers.0.fc1.weight' contains numbers up to 7e+04; the maximum of fp16") == 1
    )
    assert "Use --precision bf16 or fp32." in error
    ranks = json.loads((tmp_path / "run" / "status.json").read_text())["ranks"]
    assert {rank["attempt"] for rank in ranks.values()} == {1}

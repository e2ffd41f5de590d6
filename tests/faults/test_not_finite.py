"""Row 10: NaN or infinity of an encoder is recomputed at fp32, or quarantined; never stored."""

import json
import os
import random

import numpy as np
import pytest
import torch
from safetensors.torch import load, save
from samples import CODING

from virnucpro.encoders.esm2.config import TOKENS
from virnucpro.run_dir import RunDirectory
from virnucpro.store.segment import read_segment

pytestmark = pytest.mark.usefixtures("one_process")
N_RECORDS = 12
POISON = 7


@pytest.fixture(scope="module")
def one_with_tryptophan(tmp_path_factory):
    """Records without tryptophan (TGG; CCA on the other strand) in any frame, except one."""
    dice = random.Random(8)
    coding = [codon for codon in CODING if codon not in {"TGG", "CCA"}]
    path = tmp_path_factory.mktemp("input") / "tryptophan.fa"
    with path.open("w") as stream:
        for number in range(N_RECORDS):
            bases = "".join(dice.choices(coding, k=dice.randint(60, 160)))
            while "TGG" in bases or "CCA" in bases:
                bases = bases.replace("TGG", "TGC").replace("CCA", "CCC")
            if number == POISON:
                bases = bases[:30] + "TGG" + bases[33:]
            stream.write(f">r{number}\n{bases}\n")
    return path


@pytest.fixture
def tryptophan(bundle_with):
    """Return a function that copies mini-deep with the given weights for tryptophan's token."""

    def make(*values):
        def change(content):
            tensors = load(content)
            weights = tensors["embed_tokens.weight"][TOKENS.index("W")]
            weights.copy_(torch.tensor(values).repeat(len(weights) // len(values)))
            return save(tensors)

        return bundle_with("protein.safetensors", change)

    return make


@pytest.fixture
def overflowing(bundle_with):
    """A copy of mini-deep with the same results, but with values beyond fp16 at tryptophan.

    One channel of its token is far above all others. The norm makes it 11 times the usual value,
    and its changed weight multiplies this by 10,000. Other residues stay below 65,504 there.
    """

    def change(content):
        tensors = load(content)
        tensors["embed_tokens.weight"][TOKENS.index("W"), 0] = 1e5
        for part in ("weight", "bias"):
            tensors[f"layers.0.final_layer_norm.{part}"][0] *= 1e4
        tensors["layers.0.fc1.weight"][:, 0] /= 1e4
        return save(tensors)

    return bundle_with("protein.safetensors", change)


def predict(program, fasta, run, *options, bundle="mini-deep", code=0):
    command = ("predict", fasta, "-o", run, "--devices", "cpu:1", "--bundle", bundle)
    return program(*command, "--embeddings=fp16", *options, code=code)


def test_a_row_that_stays_not_finite_is_quarantined_and_never_stored(
    one_with_tryptophan, tryptophan, called, tables, tmp_path
):
    healthy, run = tmp_path / "healthy", tmp_path / "run"
    predict(called, one_with_tryptophan, healthy)
    bundle = tryptophan(3e38, -3e38)  # weights must be finite; their variance overflows
    predict(called, one_with_tryptophan, run, bundle=bundle, code=2)
    quarantined = tables(run / "quarantine.tsv")
    assert {row["seq_name"] for row in quarantined} == {f"r{POISON}"}
    assert {row["reason"] for row in quarantined} == {"not_finite"}
    assert {row["evidence"] for row in quarantined} == {
        "128 of 128 numbers of the mini-esm2 vector are NaN or infinite, in a batch and alone"
    }
    before, after = tables(healthy / "predictions.tsv"), tables(run / "predictions.tsv")
    for old, new in zip(before, after, strict=True):
        if old["seq_name"] != f"r{POISON}":
            assert (new["status"], new["call"]) == (old["status"], old["call"])
            assert float(new["score"]) == pytest.approx(float(old["score"]), abs=2e-4)
    for _, path in RunDirectory(run).segments():
        segment = read_segment(path)
        assert np.isfinite(segment.embeddings).all()
        assert np.isfinite(segment.scores).all()


def test_a_row_that_overflows_at_fp16_falls_back_to_fp32(
    one_with_tryptophan, overflowing, called, tables, tmp_path
):
    runs = {precision: tmp_path / precision for precision in ("fp32", "fp16")}
    for precision, run in runs.items():
        options = ("--precision", precision, "-q")
        done = predict(called, one_with_tryptophan, run, *options, bundle=overflowing, code=0)
    full, half = (tables(run / "predictions.tsv") for run in runs.values())
    assert half[POISON]["status"] == "scored"
    for one, other in zip(full, half, strict=True):
        assert float(one["score"]) == pytest.approx(float(other["score"]), abs=0.01)
    (launch,) = json.loads((runs["fp16"] / "run" / "run.json").read_text())["launches"]
    recomputed = sum(rank["recomputed"] for rank in launch["ranks"].values())
    assert recomputed
    assert done.stderr == (
        f"[virnucpro] warning: the vectors of {recomputed} rows contained NaN or infinity at fp16 "
        "in a batch. These rows were recomputed one by one at fp32. To avoid such rows, start a "
        "new run with --precision bf16 or fp32.\n"
    )
    logs = "".join(path.read_text() for path in (runs["fp16"] / "run" / "logs").glob("rank*.log"))
    assert "rows were not finite in their batch; recomputed one by one at fp32" in logs


def test_a_vector_too_large_for_fp16_is_quarantined_with_advice(
    one_with_tryptophan, bundle_with, called, tables, tmp_path
):
    def change(content):
        tensors = load(content)
        tensors["emb_layer_norm_after.weight"][0] = 1e6
        return save(tensors)

    model, run = f"{bundle_with('protein.safetensors', change)}/protein", tmp_path / "run"
    proteins = tmp_path / "proteins.faa"
    proteins.write_text(">a\nMKLVWW\n>b\n\n>c\nMSTNPKPQRKTKRNTNRRPQDVKFPGG\n")
    command = ("embed", proteins, "-e", model, "--devices", "cpu:1", "-q", "-o")
    done = called(*command, run, code=2)
    quarantined = tables(run / "quarantine.tsv")
    assert {row["reason"] for row in quarantined} == {"overflow"}
    assert all("(start a new run with --embeddings fp32)" in row["evidence"] for row in quarantined)
    nothing, warning = done.stderr.splitlines()
    assert "no sequence has a vector: 1 too short, 2 quarantined" in nothing
    assert warning.startswith("[virnucpro] warning: 2 rows are quarantined: they have no")
    assert warning.endswith(
        " 2 of these rows exceed the range of fp16. To keep their vectors, start a new run with "
        "--embeddings fp32."
    )
    kept = called(*command, tmp_path / "kept", "--embeddings", "fp32")
    assert (kept.returncode, kept.stderr) == (0, "")


NO_FREE_MEMORY = """
import sys

if "--multiprocessing-fork" in sys.orig_argv:
    from virnucpro.encoders import device

    device.available_memory = lambda: 10**4
"""
"""Makes each rank see a machine with too little memory for a further encoder."""


@pytest.mark.slow
def test_without_memory_for_a_fallback_a_row_is_quarantined(
    one_with_tryptophan, overflowing, virnucpro, tables, tmp_path, monkeypatch
):
    # the memory of a worker, which is a process of its own
    (tmp_path / "sitecustomize.py").write_text(NO_FREE_MEMORY)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=os.pathsep)
    run = tmp_path / "run"
    options = ("--precision", "fp16")
    done = predict(virnucpro, one_with_tryptophan, run, *options, bundle=overflowing, code=2)
    assert not (run / "missing.tsv").exists()
    assert "failed" not in done.stderr
    quarantined = tables(run / "quarantine.tsv")
    assert {row["seq_name"] for row in quarantined} == {f"r{POISON}"}
    assert {row["reason"] for row in quarantined} == {"not_finite"}
    assert all("memory of cpu is too small" in row["evidence"] for row in quarantined)

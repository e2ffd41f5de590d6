"""Row 10: an encoder gives NaN or infinity. Never stored: tried once more at fp32, then told."""

import random

import numpy as np
import pytest
import torch
from safetensors.torch import load, save

from virnucpro.encoders.residues import TOKENS
from virnucpro.run_dir import RunDirectory
from virnucpro.store.segment import read_segment

pytestmark = pytest.mark.timeout(110)
N_RECORDS = 40
POISON = 17


@pytest.fixture(scope="module")
def one_with_tryptophan(tmp_path_factory):
    """Records that hold no tryptophan in any frame, but for one: TGG, and CCA, its reverse."""
    dice = random.Random(8)
    codons = [a + b + c for a in "ACGT" for b in "ACGT" for c in "ACGT"]
    coding = [codon for codon in codons if codon not in {"TAA", "TAG", "TGA", "TGG", "CCA"}]
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
    """A copy of mini whose ESM-2 has other weights for tryptophan's token, in turns."""

    def make(*values):
        def change(content):
            tensors = load(content)
            weights = tensors["embed_tokens.weight"][TOKENS.index("W")]
            weights.copy_(torch.tensor(values).repeat(len(weights) // len(values)))
            return save(tensors)

        return bundle_with("protein.safetensors", change)

    return make


def predict(virnucpro, fasta, run, *options):
    return virnucpro("predict", fasta, "-o", run, "--devices", "cpu:2", *options)


def test_what_stays_not_finite_is_set_aside_and_never_stored(
    one_with_tryptophan, tryptophan, virnucpro, tables, tmp_path
):
    healthy, run = tmp_path / "healthy", tmp_path / "run"
    assert predict(virnucpro, one_with_tryptophan, healthy).returncode == 0
    bundle = tryptophan(3e38, -3e38)  # finite, as weights have to be; their variance is not
    done = predict(virnucpro, one_with_tryptophan, run, "--bundle", bundle)
    assert done.returncode == 2, done.stderr
    aside = tables(run / "quarantine.tsv")
    assert {row["seq_name"] for row in aside} == {f"r{POISON}"}
    assert {row["reason"] for row in aside} == {"not_finite"}
    assert {row["evidence"] for row in aside} == {
        "mini-esm2 gave a vector with 128 of 128 numbers not finite, in a batch and alone"
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


def test_what_half_precision_cannot_hold_is_taken_from_fp32(
    one_with_tryptophan, tryptophan, virnucpro, tables, tmp_path
):
    bundle = tryptophan(1e5)
    runs = {precision: tmp_path / precision for precision in ("fp32", "fp16")}
    for precision, run in runs.items():
        options = ("--bundle", bundle, "--precision", precision)
        done = predict(virnucpro, one_with_tryptophan, run, *options)
        assert done.returncode == 0, done.stderr
    full, half = (tables(run / "predictions.tsv") for run in runs.values())
    assert half[POISON]["status"] == "scored"
    for one, other in zip(full, half, strict=True):
        assert float(one["score"]) == pytest.approx(float(other["score"]), abs=0.01)

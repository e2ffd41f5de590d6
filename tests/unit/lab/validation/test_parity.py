import json
import shutil
from dataclasses import replace

import numpy as np
import pytest
from cases import slow
from safetensors.numpy import load_file, save_file

from virnucpro.lab.validation import parity
from virnucpro.lab.validation.options import BenchOptions
from virnucpro.lab.validation.parity import measure_parity


@pytest.fixture
def damaged(monkeypatch, tmp_path):
    """Change the weights that are loaded for the device, not those for the CPU."""
    load, calls = parity.load_encoder, []

    def load_damaged(spec, *arguments):
        calls.append(spec)
        if len(calls) % 2 == 0:  # the device's encoder is loaded first, then the CPU's
            return load(spec, *arguments)
        folder = tmp_path / f"{spec.name}-{len(calls)}"
        shutil.copytree(spec.folder, folder)
        path = folder / spec.files["weights"]
        dice = np.random.default_rng(1)
        tensors = load_file(path)
        for name, values in tensors.items():
            if not name.endswith("inv_freq"):  # a rotary frequency below 0 is refused
                tensors[name] += dice.normal(0, 0.05, values.shape).astype(values.dtype)
        save_file(tensors, path)
        return load(replace(spec, folder=folder), *arguments)

    monkeypatch.setattr(parity, "load_encoder", load_damaged)


PARITY = ("bench", "--parity", "--device", "cpu", "-n", "10")


@pytest.mark.parametrize("precision", ["fp32", slow("fp16"), slow("bf16")])
def test_mini_agrees_at_every_precision(precision):
    vectors, other, scores = measure_parity(
        BenchOptions(bundle="mini-deep", device="cpu", precision=precision, n_sequences=16)
    )
    agreements = (vectors, other, scores)
    assert all(agreement.agrees and agreement.n == 16 for agreement in agreements)
    errors = [vectors.largest_error, other.largest_error]
    assert (max(errors) < 1e-5) == (precision == "fp32")
    assert (scores.largest_error < 1e-6) == (precision == "fp32")


def test_damaged_weights_do_not_agree(damaged, called):
    printed = called(*PARITY, "-b", "mini-deep", "--json", code=1).stdout
    assert [agreement["agrees"] for agreement in json.loads(printed)][:2] == [False, False]


@pytest.mark.usefixtures("reading_here")
def test_published_weights_are_compared_without_a_bundle(tmp_path, called, stand_ins):
    from esm.model.esm2 import ESM2

    path = tmp_path / "esm2_tiny.pt"
    stand_ins.save_esm2(path, ESM2(2, 32, 4))
    assert "esm2_tiny" in called(*PARITY, "-e", path, code=0).stdout


@pytest.mark.usefixtures("reading_here")
def test_another_file_with_a_published_name_is_refused_as_by_embed(tmp_path, called, stand_ins):
    from esm.model.esm2 import ESM2

    path = tmp_path / "esm2_t6_8M_UR50D.pt"
    stand_ins.save_esm2(path, ESM2(2, 32, 4))
    printed = called(*PARITY, "-e", path, code=1).stderr
    assert printed == called("embed", "x.fa", "-e", path, "-o", tmp_path / "run", code=1).stderr
    assert "is not the published file" in printed
    assert "give a model of your own another file name" in printed


def test_the_help_explains_the_comparison(called):
    printed = " ".join(called("bench", "--help").stdout.split())
    assert "in batches on this device and one by one on the CPU at fp32" in printed

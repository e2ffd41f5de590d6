import json
import shutil
from dataclasses import replace

import numpy as np
import pytest
from cases import slow
from safetensors.numpy import load_file, save_file

from virnucpro.cli.main import main
from virnucpro.errors import InputError
from virnucpro.lab.validation import parity
from virnucpro.lab.validation.options import ParityOptions
from virnucpro.lab.validation.parity import measure_parity

EXAMPLE = "tests/data/example.fa"


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


@pytest.mark.parametrize("precision", ["fp32", slow("fp16"), slow("bf16")])
def test_mini_agrees_at_every_precision(precision):
    found = measure_parity(
        ParityOptions(bundle="mini-deep", device="cpu", precision=precision, n_sequences=16)
    )
    assert found.agrees
    assert [one.n for one in found.encoders] == [16, 16]
    assert found.head.n == 16
    errors = [one.largest_error for one in found.encoders]
    assert (max(errors) < 1e-5) == (precision == "fp32")
    assert (found.head.largest_error < 1e-6) == (precision == "fp32")


@pytest.mark.parametrize("precision", ["fp32", slow("bf16")])
def test_damaged_weights_do_not_agree(precision, damaged, called):
    command = ["parity", "-b", "mini-deep", "--device", "cpu", "--precision", precision, "-n", "10"]
    assert called(*command, code=1).stdout.count("DIFFERS") >= 2


def test_json_agrees_with_the_exit_code(damaged, capsys):
    assert main(["parity", "-b", "mini-deep", "--device", "cpu", "-n", "10", "--json"]) == 1
    printed = json.loads(capsys.readouterr().out)
    assert printed["agrees"] is False
    assert [one["agrees"] for one in printed["encoders"]] == [False, False]
    assert printed["precision"] == "fp32"


def test_items_of_a_file_are_compared(called):
    command = ["parity", "-b", "mini-deep", "--device", "cpu", "--fasta", EXAMPLE, "-n", "12"]
    command += ["--precision", "fp32"]
    table = called(*command, code=0).stdout.splitlines()
    assert table[0].startswith("mini-deep on cpu at fp32")
    assert [line.split()[:2] for line in table[2:]] == [
        ["mini-dnabert-s", "12"],
        ["mini-esm2", "12"],
        ["scores", "12"],
    ]


def test_a_file_without_an_open_frame_is_refused(tmp_path):
    path = tmp_path / "stops.fa"
    path.write_text(">a\n" + "TAGTAATTAACTATTACTA" * 30 + "\n>b\n\n")
    with pytest.raises(InputError, match="no sequence for an encoder"):
        measure_parity(ParityOptions(bundle="mini-deep", device="cpu", fasta=str(path)))


@pytest.mark.usefixtures("reading_here")
def test_published_weights_are_compared_without_a_bundle(tmp_path, called, stand_ins):
    from esm.model.esm2 import ESM2

    path = tmp_path / "esm2_tiny.pt"
    stand_ins.save_esm2(path, ESM2(2, 32, 4))
    proteins = tmp_path / "proteins.fa"
    proteins.write_text(">a\nMKLV\n>b\nMSTNPKPQRKTKRNTNRRPQDVKFPGG\n")
    found = measure_parity(ParityOptions(encoder=path, device="cpu", fasta=str(proteins)))
    assert found.agrees
    assert found.head is None
    assert found.encoders[0].n == 2
    assert "esm2_tiny" in called("parity", "-e", path, "--device", "cpu", "-n", "5", code=0).stdout


@pytest.mark.usefixtures("reading_here")
def test_another_file_with_a_published_name_is_refused_as_by_embed(tmp_path, called, stand_ins):
    from esm.model.esm2 import ESM2

    path = tmp_path / "esm2_t6_8M_UR50D.pt"
    stand_ins.save_esm2(path, ESM2(2, 32, 4))
    printed = called("parity", "-e", path, "--device", "cpu", "-n", "5", code=1).stderr
    assert printed == called("embed", "x.fa", "-e", path, "-o", tmp_path / "run", code=1).stderr
    assert "is not the published file" in printed
    assert "give a model of your own another file name" in printed


def test_an_encoder_of_a_bundle_is_named_as_for_embed(tmp_path):
    proteins = tmp_path / "proteins.fa"
    proteins.write_text(">a\nMKLV\n>b\nMSTNPKPQRKTKRNTNRRPQDVKFPGG\n")
    found = measure_parity(ParityOptions(encoder="mini-deep/protein", device="cpu", fasta=proteins))
    assert found.agrees
    assert found.model == "mini-deep/protein"
    assert [(one.encoder, one.n) for one in found.encoders] == [("mini-esm2", 2)]


def test_the_help_explains_a_comparison_on_the_cpu_at_fp32(called):
    printed = " ".join(called("parity", "--help").stdout.split())
    assert "compares batches with single sequences only" in printed

from dataclasses import asdict

import pytest
from cases import slow
from doubles import open_run

from virnucpro.cli.main import main
from virnucpro.compute import preflight
from virnucpro.compute.preflight import default_precision, settled
from virnucpro.encoders.base import EncoderSpec
from virnucpro.encoders.memory import bytes_of
from virnucpro.encoders.registry import PUBLISHED, shapes_of
from virnucpro.run.execution import Execution
from virnucpro.run.manifest import read_manifest
from virnucpro.run.predict_job import predict_job
from virnucpro.run_dir import RunDirectory

EXAMPLE = "tests/data/example.fa"


@pytest.mark.parametrize(
    ("kind", "n_bytes", "precision"),
    [
        ("cuda", 10**8, "fp16"),
        ("cuda", 10**8 - 1, "fp32"),
        ("cpu", 10**10, "fp32"),
    ],
)
def test_auto_follows_device_and_size(kind, n_bytes, precision):
    assert default_precision(kind, n_bytes) == precision


def test_mini_deep_computes_at_fp32_on_every_device():
    shapes = shapes_of(*predict_job([EXAMPLE], bundle="mini-deep").encoders)
    n_bytes = bytes_of(shapes, "fp32")
    assert 10**5 < n_bytes < 10**7
    assert default_precision("cuda", n_bytes) == "fp32"


@pytest.mark.parametrize(
    ("size", "wanted"), [("esm2_t6_8M_UR50D", "fp32"), ("esm2_t12_35M_UR50D", "fp16")]
)
def test_the_default_does_not_depend_on_the_type_of_stored_weights(tmp_path, size, wanted):
    """35M parameters are 67 MB of a file in half precision and 134 MB of one at fp32."""
    spec = EncoderSpec(size, "esm2", "protein", 1, tmp_path, {}, asdict(PUBLISHED[size]))
    n_bytes = bytes_of(shapes_of(spec), "fp32")
    assert n_bytes == 2 * bytes_of(PUBLISHED[size].tensor_shapes().values(), "fp16")
    assert default_precision("cuda", n_bytes) == wanted


def test_the_run_records_the_precision_and_a_resume_keeps_it(tmp_path, monkeypatch):
    monkeypatch.setattr(preflight, "default_precision", lambda *_: "fp16")
    job = predict_job([EXAMPLE], precision="auto")
    first = Execution(tmp_path / "run", devices="cpu:1", resume=True)
    with open_run(settled(job, first), first) as run:
        assert run.manifest.parameters["precision"] == "fp16"
    monkeypatch.setattr(preflight, "default_precision", lambda *_: "fp32")
    assert settled(job, first, run.manifest).settled_precision == "fp16"
    own = job.with_options(precision="bf16")
    assert settled(own, first, run.manifest).settled_precision == "bf16"
    anew = Execution(tmp_path / "run", devices="cpu:1", force=True)
    assert settled(job, anew).settled_precision == "fp32"


@pytest.mark.parametrize("command", [["predict"], slow(["embed", "-e", "mini-deep/protein"])])
def test_a_run_of_the_command_line_resolves_auto(command, tmp_path, monkeypatch):
    monkeypatch.setattr(preflight, "default_precision", lambda *_: "fp16")
    path = tmp_path / "short.fa"
    path.write_text(">a\nAC\n")  # nothing to encode
    where = [str(path), "-o", str(tmp_path / "run"), "-q", "--devices", "cpu"]
    assert main([*command, *where]) == 0
    assert read_manifest(RunDirectory(tmp_path / "run")).parameters["precision"] == "fp16"

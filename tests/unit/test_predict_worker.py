"""The worker behind ``virnucpro launch``, in this process."""

import pytest
import torch
from doubles import open_run

from virnucpro import predict_worker as predict
from virnucpro.compute import preflight
from virnucpro.compute.preflight import settled
from virnucpro.dispatch import WorkerUnusable
from virnucpro.encoders.memory import PROCESS_BYTES
from virnucpro.errors import InputError, UsageError
from virnucpro.launch import run_multi_gpu
from virnucpro.run.execution import Execution
from virnucpro.run.manifest import read_manifest
from virnucpro.run.predict_job import predict_job
from virnucpro.run_dir import RunDirectory


@pytest.fixture
def folders(tmp_path):
    (tmp_path / "in" / "sub").mkdir(parents=True)
    (tmp_path / "in" / "sub" / "a.fa").write_text(f">a\n{'ATGGCC' * 60}\n>b\nA\n")
    (tmp_path / "in" / "b.fa").write_text("no sequences\n")
    return {"input_dir": tmp_path / "in", "output_dir": tmp_path / "out"}


@pytest.fixture
def worker(folders):
    one = predict.Worker()
    one.setup(0, 42, **folders, threads=1, embeddings="none")
    return one


def test_the_run_of_a_file_has_the_same_relative_path(worker, folders):
    file = str(folders["input_dir"] / "sub" / "a.fa")
    first, again = worker.process(file), worker.process(file)
    assert (first["sequences"], first["complete"], first["skipped"]) == (2, True, False)
    assert (again["sequences"], again["complete"], again["skipped"]) == (2, True, True)
    folder = folders["output_dir"] / "sub" / "a.fa"
    assert first["details"]["folder"] == str(folder)
    assert first["details"]["records"] == {"scored": 1, "too_short": 1}
    assert (folder / "predictions.tsv").exists()
    assert not (folder / "embeddings.h5").exists()
    with pytest.raises(InputError):
        worker.process(str(folders["input_dir"] / "b.fa"))


def test_a_device_that_fails_makes_the_worker_unusable(worker, folders, monkeypatch):
    def fail(*_):
        raise torch.AcceleratorError("CUDA error: an illegal memory access was encountered")

    monkeypatch.setattr(predict, "run_in_process", fail)
    with pytest.raises(WorkerUnusable, match="cpu: CUDA error"):
        worker.process(str(folders["input_dir"] / "sub" / "a.fa"))


@pytest.mark.parametrize(
    "options", [{"bundle": "no-such"}, {"precision": "int3"}, {"windows": 300}, {"inputs": "a.fa"}]
)
def test_invalid_options_are_refused_at_setup(folders, options):
    with pytest.raises(UsageError):
        predict.Worker().setup(0, 42, **folders, **options)


def test_auto_becomes_the_precision_of_a_new_run(folders, monkeypatch):
    monkeypatch.setattr(preflight, "default_precision", lambda *_: "bf16")
    keywords = predict.Worker.prepare("cpu", folders["output_dir"], {"precision": "auto"})
    assert keywords["job"].options.precision == "bf16"
    one = predict.Worker()
    one.setup(0, 42, **folders, precision="auto", embeddings="none")
    assert one._job.options.precision == "bf16"


def test_auto_becomes_the_precision_of_the_first_run(folders, monkeypatch):
    out = folders["output_dir"]
    monkeypatch.setattr(preflight, "default_precision", lambda *_: "fp16")
    job = predict_job([str(folders["input_dir"] / "sub" / "a.fa")], precision="auto")
    first = Execution(out / "sub" / "b.fa", devices="cpu:1")
    first.outdir.parent.mkdir(parents=True)
    with open_run(settled(job, first), first):
        pass
    good = RunDirectory(first.outdir).run_json.read_text()
    for name, text in (
        ("a.fa", "torn"),
        ("c.fa", good.replace('"fp16"', '"fp32"')),
        ("d.fa", good.replace('"schema_version": ', '"schema_version": 1')),
        ("f.fa", "[]"),
    ):
        (out / name / "run").mkdir(parents=True)
        (out / name / "run" / "run.json").write_text(text)
    (out / "e.fa" / "run" / "run.json").mkdir(parents=True)
    monkeypatch.setattr(preflight, "default_precision", lambda *_: "fp32")
    for given, wanted in (("auto", "fp16"), ("bf16", "bf16")):
        keywords = predict.Worker.prepare("cpu", out, {"precision": given})
        assert keywords["job"].options.precision == wanted


def test_the_memory_estimate_depends_on_the_precision(tmp_path):
    job = predict_job((), bundle="mini-deep", precision="fp32")
    assert predict.Worker.memory_bytes({"job": job}) > PROCESS_BYTES
    half = job.with_options(precision="bf16")
    assert predict.Worker.memory_bytes({"job": half}) < predict.Worker.memory_bytes({"job": job})


@pytest.mark.timeout(100)
def test_a_library_launch_with_precision_auto(folders):
    """The job is resolved before the workers start; the library limits them by CPUs and memory."""
    code = run_multi_gpu(
        folders["input_dir"], folders["output_dir"], "cpu:1", "**/a.fa", precision="auto"
    )
    assert code == 0
    run = RunDirectory(folders["output_dir"] / "sub" / "a.fa")
    assert read_manifest(run).parameters["precision"] == "fp32"

from types import SimpleNamespace

import pytest

from virnucpro.compute import preflight as fitting
from virnucpro.compute.predict import predict
from virnucpro.compute.preflight import check_device_memory
from virnucpro.encoders.memory import weight_bytes
from virnucpro.encoders.registry import shapes_of
from virnucpro.errors import DeviceError
from virnucpro.run.execution import Execution
from virnucpro.run.predict_job import predict_job
from virnucpro.runtime.devices import Device


@pytest.fixture
def job():
    return predict_job(["a.fa"], bundle="mini-deep", precision="fp32")


def test_encoders_larger_than_memory_are_refused_before_a_folder_exists(monkeypatch, tmp_path, job):
    monkeypatch.setattr(fitting, "usable_memory", lambda: 100_000)
    told = r"GB are needed for mini-dnabert-s and mini-esm2 .* cpu has 0\.0 GB"
    with pytest.raises(DeviceError, match=told):
        predict(job, Execution(tmp_path / "run", devices="cpu"))
    assert not (tmp_path / "run").exists()


def test_ranks_on_a_cpu_share_its_memory(monkeypatch, tmp_path, job):
    weights = weight_bytes(shapes_of(*job.encoders), "fp32", "cpu")
    monkeypatch.setattr(fitting, "usable_memory", lambda: 3 * weights)
    with pytest.raises(DeviceError, match=r"in 4 workers, .* Start fewer workers"):
        predict(job, Execution(tmp_path / "run", devices="cpu:4"))
    assert not (tmp_path / "run").exists()
    check_device_memory(job, 3 * [Device("cpu")])


def test_the_memory_of_a_gpu_is_read_from_the_driver(monkeypatch, job):
    monkeypatch.setattr(fitting, "visible_gpus", lambda _environ: {"1": "GPU-x"})
    monkeypatch.setattr(fitting, "gpu_facts", lambda _uuid: SimpleNamespace(total_memory=1000))
    check_device_memory(job, [Device("cpu"), Device("cuda", "0")])
    with pytest.raises(DeviceError, match="cuda:1 has"):
        check_device_memory(job, [Device("cuda", "0"), Device("cuda", "1")])


def test_a_bundle_of_whole_windows_has_no_fallback():
    job = predict_job(["a.fa"], precision="fp32")
    assert (job.index.kind, job.index.fallback, job.fallback) == ("windows", False, None)
    assert "fallback" not in job.parameters()

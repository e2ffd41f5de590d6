from dataclasses import asdict, replace

import pytest

from virnucpro.compute import preflight
from virnucpro.compute.preflight import devices_of, ranks_that_fit
from virnucpro.encoders.base import EncoderSpec
from virnucpro.encoders.registry import PUBLISHED
from virnucpro.errors import UsageError
from virnucpro.run.execution import Execution
from virnucpro.run.predict_job import predict_job
from virnucpro.runtime.devices import Device

GB = 1 << 30


@pytest.mark.parametrize(
    ("threads", "weights", "memory", "expected"),
    [
        (1, 0, 16 * GB, 1),
        (8, 0, 3 * GB, 3),
        (8, GB // 2, 24 * GB, 8),
        (64, GB // 2, 24 * GB, 12),
        (8, 11 * GB, 64 * GB, 2),
        (8, 11 * GB, 16 * GB, 1),
    ],
)
def test_ranks_are_one_per_thread_within_half_of_the_memory(threads, weights, memory, expected):
    assert ranks_that_fit(threads, weights, memory) == expected


@pytest.mark.parametrize(("precision", "expected"), [("fp32", 3), ("fp16", 8)])
def test_memory_of_a_rank_depends_on_its_precision(tmp_path, monkeypatch, precision, expected):
    """ESM-2 3B takes 16.4 GB at fp32, whatever the type of its file."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    monkeypatch.setattr(preflight, "usable_memory", lambda: 100 * 10**9)
    size = PUBLISHED["esm2_t36_3B_UR50D"]
    spec = EncoderSpec("3B", "esm2", "protein", 2560, tmp_path, {}, asdict(size))
    job = replace(predict_job(["a.fa"], precision=precision), encoders=(spec,))
    assert len(devices_of(job, Execution(tmp_path, threads=12))) == expected


def test_auto_without_a_gpu_is_one_rank_per_thread(tmp_path, monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    job = predict_job(["a.fa"], precision="fp32")
    assert devices_of(job, Execution(tmp_path, threads=3)) == [Device("cpu")] * 3
    assert devices_of(job, Execution(tmp_path, devices="cpu", threads=3)) == [Device("cpu")]
    assert devices_of(job, Execution(tmp_path, devices="cpu:2", threads=1)) == [Device("cpu")] * 2
    assert devices_of(job, Execution(tmp_path, threads=3, in_process=True)) == [Device("cpu")]
    with pytest.raises(UsageError):
        devices_of(job, Execution(tmp_path, devices="foo"))

import pytest

from virnucpro.errors import UsageError
from virnucpro.pipeline.execution import Execution
from virnucpro.pipeline.predict import predict_job
from virnucpro.pipeline.ranks import devices_of, ranks_that_fit
from virnucpro.runtime.devices import Device

GB = 1 << 30


@pytest.mark.parametrize(
    ("threads", "weights", "memory", "ranks"),
    [
        (1, 0, 16 * GB, 1),
        (8, 2_000_000, 24 * GB, 8),
        (64, 2_000_000, 24 * GB, 23),
        (8, 11 * GB, 64 * GB, 2),
        (8, 11 * GB, 16 * GB, 1),
    ],
)
def test_one_rank_a_thread_as_far_as_memory_goes(threads, weights, memory, ranks):
    assert ranks_that_fit(threads, weights, memory) == ranks


def test_auto_without_a_gpu_spreads_over_the_threads(tmp_path, monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    job = predict_job(["a.fa"])
    assert devices_of(job, Execution(tmp_path, threads=3)) == [Device("cpu")] * 3
    assert devices_of(job, Execution(tmp_path, devices="cpu", threads=3)) == [Device("cpu")]
    assert devices_of(job, Execution(tmp_path, devices="cpu:2", threads=1)) == [Device("cpu")] * 2
    with pytest.raises(UsageError):
        devices_of(job, Execution(tmp_path, devices="foo"))

from dataclasses import asdict, replace

import pytest

from virnucpro.encoders.base import EncoderSpec
from virnucpro.encoders.registry import PUBLISHED
from virnucpro.errors import UsageError
from virnucpro.pipeline.execution import Execution
from virnucpro.pipeline.jobs import rank_count as ranks
from virnucpro.pipeline.jobs.rank_count import devices_of, ranks_that_fit
from virnucpro.pipeline.predict import predict_job
from virnucpro.runtime.devices import Device

GB = 1 << 30


@pytest.mark.parametrize(
    ("threads", "rank_bytes", "memory", "wanted"),
    [
        (1, 0, 16 * GB, 1),
        (8, 0, 3 * GB, 3),
        (8, GB // 2, 24 * GB, 8),
        (64, GB // 2, 24 * GB, 24),
        (8, 11 * GB, 64 * GB, 2),
        (8, 11 * GB, 16 * GB, 1),
    ],
)
def test_one_rank_a_thread_as_far_as_half_of_the_memory_goes(threads, rank_bytes, memory, wanted):
    assert ranks_that_fit(threads, rank_bytes, memory) == wanted


@pytest.mark.parametrize(("precision", "wanted"), [("fp32", 3), ("fp16", 8)])
def test_what_counts_is_the_precision_computed_with_not_the_file(
    tmp_path, monkeypatch, precision, wanted
):
    """ESM-2 3B takes 16.4 GB at fp32, in whichever type it is stored; here there is no file."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    monkeypatch.setattr(ranks, "usable_memory", lambda: 100 * 10**9)
    size = PUBLISHED["esm2_t36_3B_UR50D"]
    spec = EncoderSpec("3B", "esm2", "protein", 2560, tmp_path, {}, asdict(size))
    job = replace(predict_job(["a.fa"]), encoders=(spec,), precision=precision)
    assert len(devices_of(job, Execution(tmp_path, threads=12))) == wanted


def test_auto_without_a_gpu_spreads_over_the_threads(tmp_path, monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    job = predict_job(["a.fa"])
    assert devices_of(job, Execution(tmp_path, threads=3)) == [Device("cpu")] * 3
    assert devices_of(job, Execution(tmp_path, devices="cpu", threads=3)) == [Device("cpu")]
    assert devices_of(job, Execution(tmp_path, devices="cpu:2", threads=1)) == [Device("cpu")] * 2
    with pytest.raises(UsageError):
        devices_of(job, Execution(tmp_path, devices="foo"))

import pytest
import torch

from virnucpro.encoders.batching import BATCH_TOKENS
from virnucpro.encoders.device import device_bytes, free_bytes
from virnucpro.encoders.esm2.config import Esm2Config
from virnucpro.encoders.memory import (
    GPU_PROCESS_BYTES,
    PROCESS_BYTES,
    bytes_of,
    memory_wanted,
    require_memory,
)
from virnucpro.encoders.registry import architectures, load_encoder
from virnucpro.errors import DeviceError

PUBLISHED = {  # layers, channels, heads, parameters in 1e9
    "esm2_t6_8M_UR50D": (6, 320, 20, 0.0074),
    "esm2_t33_650M_UR50D": (33, 1280, 20, 0.65),
    "esm2_t36_3B_UR50D": (36, 2560, 40, 2.84),
    "esm2_t48_15B_UR50D": (48, 5120, 40, 15.1),
}


@pytest.mark.parametrize("name", PUBLISHED)
@pytest.mark.parametrize(("precision", "each"), [("fp32", 4), ("fp16", 2), ("bf16", 2)])
def test_bytes_of_weights_match_the_published_sizes(name, precision, each):
    *size, billions = PUBLISHED[name]
    shapes = Esm2Config(*size).tensor_shapes().values()
    assert bytes_of(shapes, precision) == pytest.approx(billions * 1e9 * each, rel=0.01)


@pytest.mark.parametrize(
    ("precision", "device", "wanted"),
    [
        ("fp32", "cpu", PROCESS_BYTES + 1400),
        ("bf16", "cpu", PROCESS_BYTES + 700),
        ("fp16", "cpu", PROCESS_BYTES + 500),
        ("fp32", "cuda:0", GPU_PROCESS_BYTES + 1000),
        ("fp16", "cuda", GPU_PROCESS_BYTES + 500),
    ],
)
def test_memory_wanted_is_weights_times_packing_plus_a_constant(precision, device, wanted):
    assert memory_wanted([(5, 40), (50,)], precision, device) == wanted


@pytest.mark.parametrize("device", ["cpu", "cuda:0"])
@pytest.mark.parametrize("precision", ["fp32", "fp16"])
def test_total_memory_is_compared_with_weights_only_free_memory_with_all(precision, device):
    weights = memory_wanted([(5, 5)], precision, device) - memory_wanted([], precision, device)
    require_memory("x", [(5, 5)], precision, device, weights)
    with pytest.raises(DeviceError):
        require_memory("x", [(5, 5)], precision, device, weights - 1)
    wanted = memory_wanted([(5, 5)], precision, device)
    require_memory("x", [(5, 5)], precision, device, wanted, free=True)
    with pytest.raises(DeviceError, match="GB free"):
        require_memory("x", [(5, 5)], precision, device, wanted - 1, free=True)


def test_the_gpu_constant_covers_a_first_batch():
    """Adds the largest tensors in memory together in a layer of DNABERT-S and of ESM-2 3B."""
    tokens, half, single = BATCH_TOKENS["cuda"], 2, 4
    channels, inner = 768, 3072
    tables = (1 << 27) * half
    dnabert_s = tokens * (3 * single * channels + half * channels + 3 * half * inner)
    channels = 2560
    esm2_3b = tokens * (single * channels + 3 * half * channels + 2 * single * channels)
    assert 1.2e9 < 0.5e9 + tables + dnabert_s < GPU_PROCESS_BYTES
    assert 1.2e9 < 0.5e9 + esm2_3b < GPU_PROCESS_BYTES


def test_encoders_that_do_not_fit_are_refused_with_both_sizes():
    shapes = Esm2Config(48, 5120, 40).tensor_shapes().values()
    with pytest.raises(DeviceError) as caught:
        require_memory("esm2_t48_15B_UR50D", shapes, "fp16", "cuda:0", 24_000_000_000)
    assert str(caught.value) == (
        "not enough memory: 31.8 GB are needed for esm2_t48_15B_UR50D at fp16 (weights plus "
        "one batch), but cuda:0 has 24.0 GB. An encoder cannot be split over devices. Use a "
        "device with more memory, or a smaller model."
    )


@pytest.mark.parametrize(
    ("precision", "device", "room", "hint"),
    [
        ("fp32", "cuda:0", 50, "--precision fp16, a"),
        ("fp32", "cpu", 70, "--precision bf16, a"),
        ("fp32", "cpu", 69, "a"),
        ("bf16", "cpu", 69, "a"),
        ("fp16", "cpu", 49, "a"),
    ],
)
def test_half_precision_is_advised_if_it_fits(precision, device, room, hint):
    with pytest.raises(DeviceError, match=rf"devices\. Use {hint} device with more memory"):
        require_memory("x", [(5, 5)], precision, device, room)


@pytest.mark.parametrize(("precision", "room"), [("fp32", 140), ("fp16", 50)])
def test_encoders_that_just_fit_are_accepted(precision, room):
    require_memory("x", [(5, 5)], precision, "cpu", room)
    require_memory("x", [(5, 5)], precision, "cpu", 3 * room, ranks=3)
    require_memory("x", [(5, 5)], precision, "cpu", None)


def test_too_many_ranks_are_refused_with_the_number_that_fits():
    shapes = Esm2Config(36, 2560, 40).tensor_shapes().values()
    with pytest.raises(DeviceError) as caught:
        require_memory("esm2_t36_3B_UR50D", shapes, "fp32", "cpu", 40 * 10**9, ranks=4)
    assert str(caught.value) == (
        "not enough memory: 16.4 GB are needed for esm2_t36_3B_UR50D at fp32 (weights plus "
        "one batch) in each of 4 workers, but cpu has 40.0 GB, enough for 2 of them. Start fewer "
        "workers, for example with --devices cpu:2."
    )


def test_a_cpu_has_the_memory_of_the_machine_and_the_meta_device_none():
    cpu, meta = torch.device("cpu"), torch.device("meta")
    assert device_bytes(cpu) >= free_bytes(cpu) > 1 << 28
    assert device_bytes(meta) is free_bytes(meta) is None


@pytest.mark.parametrize(
    "architecture",
    [one for one in architectures() if one not in {"composition", "genes", "plugin"}],
)
def test_loading_is_refused_before_the_weights_are_read(spec_of, monkeypatch, architecture):
    spec = spec_of(architecture)
    spec.file("weights").unlink()
    monkeypatch.setattr("virnucpro.encoders.loading.device_bytes", lambda _device: 1000)
    with pytest.raises(
        DeviceError, match=rf"not enough memory: .* GB are needed for {spec.name} at fp32"
    ):
        load_encoder(spec)

import pytest
import torch

from virnucpro.encoders.device import device_bytes, free_bytes
from virnucpro.encoders.esm2.config import Esm2Config
from virnucpro.encoders.memory import (
    bytes_of,
    require_memory,
    weight_bytes,
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
    ("precision", "device", "needed"),
    [
        ("fp32", "cpu", 1400),
        ("bf16", "cpu", 700),
        ("fp16", "cpu", 500),
        ("fp32", "cuda:0", 1000),
        ("fp16", "cuda", 500),
    ],
)
def test_weights_take_their_size_times_packing(precision, device, needed):
    assert weight_bytes([(5, 40), (50,)], precision, device) == needed


def test_encoders_that_do_not_fit_are_refused_with_both_sizes():
    shapes = Esm2Config(48, 5120, 40).tensor_shapes().values()
    with pytest.raises(DeviceError) as caught:
        require_memory("esm2_t48_15B_UR50D", shapes, "fp16", "cuda:0", 24_000_000_000)
    assert str(caught.value) == (
        "not enough memory: 30.2 GB are needed for esm2_t48_15B_UR50D at fp16 in 1 worker, but "
        "cuda:0 has 24.0 GB. Start fewer workers, or use half precision, a device with more memory "
        "or a smaller model."
    )


@pytest.mark.parametrize(("precision", "room"), [("fp32", 140), ("fp16", 50)])
def test_encoders_that_just_fit_are_accepted(precision, room):
    require_memory("x", [(5, 5)], precision, "cpu", room)
    require_memory("x", [(5, 5)], precision, "cpu", 3 * room, ranks=3)
    require_memory("x", [(5, 5)], precision, "cpu", None)
    with pytest.raises(DeviceError, match="in 3 workers"):
        require_memory("x", [(5, 5)], precision, "cpu", 3 * room - 1, ranks=3)


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

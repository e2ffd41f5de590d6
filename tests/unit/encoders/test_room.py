import dataclasses

import pytest
import torch

from virnucpro.encoders import esm2
from virnucpro.encoders.esm2_config import Esm2Config, tensor_shapes
from virnucpro.encoders.registry import load_encoder, open_spec
from virnucpro.encoders.room import device_bytes, require_room, weight_bytes
from virnucpro.errors import DeviceError

PUBLISHED = {  # layers, channels, heads; thousands of millions of parameters
    "esm2_t6_8M_UR50D": (6, 320, 20, 0.0074),
    "esm2_t33_650M_UR50D": (33, 1280, 20, 0.65),
    "esm2_t36_3B_UR50D": (36, 2560, 40, 2.84),
    "esm2_t48_15B_UR50D": (48, 5120, 40, 15.1),
}


@pytest.mark.parametrize("name", PUBLISHED)
@pytest.mark.parametrize(("precision", "each"), [("fp32", 4), ("fp16", 2), ("bf16", 2)])
def test_weights_are_counted_as_the_published_sizes_say(name, precision, each):
    *size, billions = PUBLISHED[name]
    shapes = tensor_shapes(Esm2Config(*size)).values()
    assert weight_bytes(shapes, precision) == pytest.approx(billions * 1e9 * each, rel=0.01)


def test_what_does_not_fit_is_refused_with_both_figures():
    with pytest.raises(DeviceError) as caught:
        require_room("esm2_t48_15B_UR50D", 30_300_000_000, "fp16", "cuda", 24_000_000_000)
    assert str(caught.value) == (
        "esm2_t48_15B_UR50D needs 30.3 GB at fp16 for its weights alone, and cuda has 24.0 GB. One "
        "encoder over several devices, or partly outside of one, is not possible yet. Take a "
        "device with more memory, or a smaller model."
    )
    with pytest.raises(DeviceError, match="--precision fp16 halves that"):
        require_room("x", 2, "fp32", "cpu", 1)


def test_what_just_fits_is_not_refused():
    require_room("x", 10, "fp32", "cpu", 10)


def test_a_cpu_has_the_machines_memory_and_the_meta_device_none():
    assert device_bytes(torch.device("cpu")) > 1 << 28
    assert device_bytes(torch.device("meta")) is None


def test_loading_is_refused_before_the_weights_are_read(fair_esm, monkeypatch):
    path, _ = fair_esm()
    spec = dataclasses.replace(open_spec(path), files={"weights": "gone.pt"})
    monkeypatch.setattr(esm2, "device_bytes", lambda _device: 1000)
    with pytest.raises(DeviceError, match=r"esm2_tiny needs .* at fp32"):
        load_encoder(spec)

import pytest
import torch

from virnucpro.encoders.device import dtype_of, open_device
from virnucpro.errors import DeviceError, UsageError


def test_precisions_have_torch_types():
    types = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}
    assert {name: dtype_of(name) for name in types} == types
    with pytest.raises(UsageError, match=r"fp8.*fp32, fp16, bf16"):
        dtype_of("fp8")


def test_opening_a_device_disables_fp16_sums_in_fp16():
    matmul = torch.backends.cuda.matmul
    matmul.allow_fp16_reduced_precision_reduction = True
    assert open_device("cpu") == torch.device("cpu")
    assert not matmul.allow_fp16_reduced_precision_reduction


@pytest.mark.parametrize("name", ["quantum", "cpu:x", "cuda:997"])
def test_a_missing_device_is_named(name):
    with pytest.raises(DeviceError, match=f"{name}.*Use 'cpu'"):
        open_device(name)

import pytest
import torch

from virnucpro.errors import DeviceError, UsageError
from virnucpro.lab.validation.compute import choose_compute
from virnucpro.lab.validation.options import ComputeOptions

SMALL, LARGE = [(10, 10)], [(10_000, 10_000)]


def test_auto_is_the_first_gpu_or_the_cpu():
    expected = ("cuda", "fp16") if torch.cuda.is_available() else ("cpu", "fp32")
    assert choose_compute(ComputeOptions("auto", "auto"), LARGE) == expected


def test_the_device_the_precision_and_the_threads_are_kept():
    assert choose_compute(ComputeOptions("cpu", "bf16"), SMALL) == ("cpu", "bf16")
    assert torch.get_num_threads() == 1


@pytest.mark.parametrize("device", ["meta", "mps", "", "cuda:x"])
def test_an_unsupported_device_is_refused(device):
    with pytest.raises(UsageError, match="is not supported: give cpu"):
        choose_compute(ComputeOptions(device, "fp32"), SMALL)


@pytest.mark.skipif(torch.cuda.device_count() > 9, reason="the machine has such a GPU")
def test_a_missing_gpu_is_refused():
    with pytest.raises(DeviceError, match="cuda:9"):
        choose_compute(ComputeOptions("cuda:9", "fp32"), SMALL)

"""GPUs are numbered as CUDA numbers them, without a call of CUDA."""

import subprocess
import sys

import pytest

from virnucpro.errors import DeviceError, UsageError
from virnucpro.launch import GPUDetector
from virnucpro.runtime.devices import Gpu, GpuFacts, gpu_facts

GPUS = [Gpu("GPU-aaaa"), Gpu("GPU-bbbb", ("MIG-b1", "MIG-b2")), Gpu("GPU-cccc")]


def facts(uuid):
    return GpuFacts(f"name of {uuid}", uuid, 80 << 30, 70 << 30, mig=uuid.startswith("MIG-"))


def detector(mask=None, gpus=GPUS):
    environ = {} if mask is None else {"CUDA_VISIBLE_DEVICES": mask}
    return GPUDetector(environ, lambda: gpus, facts)


@pytest.mark.parametrize(
    ("mask", "uuids"),
    [
        (None, ["GPU-aaaa", "GPU-cccc", "MIG-b1", "MIG-b2"]),
        ("2,0", ["GPU-cccc", "GPU-aaaa"]),
        ("MIG-b2", ["MIG-b2"]),
        ("", []),
        ("-1", []),
    ],
)
def test_an_inherited_mask_is_respected(mask, uuids):
    found = detector(mask)
    assert found.get_available_gpus() == list(range(len(uuids)))
    assert found.is_cuda_available() == bool(uuids)
    assert [found.get_gpu_info(number)["uuid"] for number in range(len(uuids))] == uuids


def test_gpu_info_comes_from_the_driver():
    assert detector().get_gpu_info(2) == {
        "id": 2,
        "name": "name of MIG-b1",
        "uuid": "MIG-b1",
        "total_memory": 80 << 30,
        "free_memory": 70 << 30,
        "mig": True,
    }
    with pytest.raises(DeviceError, match="no GPU 4"):
        detector().get_gpu_info(4)


def test_gpu_lists_are_parsed():
    assert detector().parse_gpu_list("auto") == [0, 1, 2, 3]
    assert detector(gpus=[]).parse_gpu_list(" auto ") == []
    assert detector().parse_gpu_list("2, 0") == [2, 0]
    for nonsense in ("", "a", "0,,1", "0;1", "-1", "cuda"):
        with pytest.raises(UsageError, match="not a list of GPUs"):
            detector().parse_gpu_list(nonsense)
    with pytest.raises(UsageError, match="twice"):
        detector().parse_gpu_list("1,1")


def test_gpu_ids_are_validated():
    assert detector().validate_gpus([3, 0]) == (True, "")
    for gpu_ids, why in (
        ([], "the list of GPUs is empty"),
        ([0, 0], "twice"),
        ([0, 9], "no GPU 9"),
    ):
        ok, error = detector().validate_gpus(gpu_ids)
        assert not ok
        assert why in error


def test_a_failing_driver_is_an_error():
    def fails():
        raise DeviceError("the NVIDIA driver does not answer")

    broken = GPUDetector({}, fails)
    assert broken.validate_gpus([0]) == (False, "the NVIDIA driver does not answer")
    with pytest.raises(DeviceError, match="does not answer"):
        broken.get_available_gpus()


def test_detection_imports_no_torch():
    code = (
        "import sys; from virnucpro.launch import GPUDetector; d = GPUDetector()\n"
        "assert d.is_cuda_available() == bool(d.get_available_gpus())\n"
        "print([d.get_gpu_info(n)['name'] for n in d.get_available_gpus()])\n"
        "assert not {'torch', 'numpy'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)


def test_facts_of_a_missing_gpu_are_an_error():
    with pytest.raises(DeviceError, match="GPU-0000"):
        gpu_facts("GPU-0000")

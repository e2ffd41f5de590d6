"""Device masks and device options."""

import contextlib
import sys
from pathlib import Path

import pynvml
import pytest
from hypothesis import given
from hypothesis import strategies as st

from virnucpro.errors import DeviceError, UsageError
from virnucpro.runtime.devices import (
    Device,
    Gpu,
    devices_of_ranks,
    inherited_mask,
    list_gpus,
    parse_devices,
    unused_gpus,
)

NODE = [Gpu(f"GPU-{letter * 8}") for letter in "abcd"]
MIG = [Gpu("GPU-aaaa", ("MIG-1111", "MIG-2222")), Gpu("GPU-bbbb")]


def environ(mask):
    return {} if mask is None else {"CUDA_VISIBLE_DEVICES": mask}


def parse(spec, mask=None, gpus=NODE):
    return [str(device) for device in parse_devices(spec, environ(mask), lambda: gpus)]


@pytest.fixture(autouse=True)
def _torch_with_cuda(request, monkeypatch):
    if "lacks_cuda" not in request.fixturenames:
        monkeypatch.setattr("virnucpro.runtime.devices._torch_without_cuda", list)


@pytest.mark.parametrize(
    ("mask", "gpus", "reason"),
    [
        ("0", [], "there is no NVIDIA driver"),
        ("GPU-eeee", NODE, "the NVIDIA driver lists no such GPU"),
        ("MIG-1111", [], "there is no NVIDIA driver"),
        ("7", NODE, "the NVIDIA driver lists no such GPU"),
        *((mask, [], "") for mask in (None, "", "-1", "NoDevFiles")),
        ("0", NODE, ""),
        ("0", MIG, ""),
    ],
)
def test_a_gpu_that_is_allotted_but_not_usable_is_named(mask, gpus, reason):
    text = unused_gpus(environ(mask), useful=True, gpus=lambda: gpus)
    assert f"CUDA_VISIBLE_DEVICES={mask} names a GPU, but {reason}" in text if reason else not text
    text = unused_gpus(environ(mask), useful=False, gpus=lambda: gpus)
    assert text.startswith(f"CUDA_VISIBLE_DEVICES={mask} has no effect: ") == bool(text)


@pytest.fixture(params=[("None", True), ("'12.8'", False)], ids=["cpu build", "cuda build"])
def lacks_cuda(request, tmp_path, monkeypatch):
    """Return whether the torch of the test, which nobody may import, is a build without CUDA."""
    cuda, lacks = request.param
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch" / "__init__.py").write_text("raise AssertionError('imported')")
    version = f"__version__ = '2.9.1+x'\ncuda: Optional[str] = {cuda}\nhip: Optional[str] = None\n"
    (tmp_path / "torch" / "version.py").write_text(version)
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    monkeypatch.syspath_prepend(tmp_path)
    return lacks


@pytest.mark.parametrize("gpus", [[], NODE])
def test_a_torch_without_cuda_is_named(lacks_cuda, gpus):
    text = unused_gpus(environ("0"), useful=True, gpus=lambda: gpus)
    assert ("torch 2.9.1+x is a build without CUDA" in text) == lacks_cuda
    assert ("NVIDIA driver" in text) == (not gpus)


@pytest.mark.parametrize("mask", [None, "0,1,2,3"])
def test_a_driver_lists_gpus_but_torch_is_the_cpu_build(lacks_cuda, mask):
    assert parse("auto", mask) == (
        ["cpu"] if lacks_cuda else ["cuda:0", "cuda:1", "cuda:2", "cuda:3"]
    )
    text = unused_gpus(environ(mask), useful=True, gpus=lambda: NODE)
    given = "this machine has" if mask is None else f"CUDA_VISIBLE_DEVICES={mask} names"
    assert text.startswith(f"{given} a GPU, but torch 2.9.1+x is a build") == lacks_cuda


@pytest.mark.parametrize(
    ("mask", "gpus", "reason"),
    [
        (None, [], "there is no GPU"),
        ("", NODE, "there is no GPU in the inherited CUDA_VISIBLE_DEVICES=''"),
        ("0", [], "CUDA_VISIBLE_DEVICES=0 names a GPU, but there is no NVIDIA driver"),
        ("7", NODE, "CUDA_VISIBLE_DEVICES=7 names a GPU, but the NVIDIA driver lists no such GPU"),
    ],
)
def test_the_reason_why_a_given_gpu_is_missing(mask, gpus, reason):
    with pytest.raises(DeviceError) as caught:
        parse("0", mask, gpus)
    assert str(caught.value).startswith(f"--devices 0: {reason}")


@pytest.mark.parametrize(
    ("text", "entries"),
    [
        (None, None),
        ("", ()),
        ("-1", ()),
        ("NoDevFiles", ()),
        ("4,5", ("4", "5")),
        (" 4 ,5 ", ("4", "5")),
        ("2,-1,3", ("2",)),
        ("0,0", ()),
        ("1,0,1", ()),
        ("GPU-8932f937-d72c,MIG-GPU-8932f937/1/0", ("GPU-8932f937-d72c", "MIG-GPU-8932f937/1/0")),
    ],
)
def test_a_mask_is_read_as_in_cuda(text, entries):
    assert inherited_mask(environ(text)) == entries


@given(st.lists(st.integers(0, 99), min_size=1, max_size=9, unique=True), st.data())
def test_rank_r_gets_the_rth_of_the_mask(mask, data):
    world_size = data.draw(st.integers(1, len(mask)))
    text = ",".join(map(str, mask))
    masks = [device.mask for device in devices_of_ranks(world_size, None, environ(text))]
    assert masks == [str(entry) for entry in mask[:world_size]]


@pytest.mark.parametrize(
    ("wanted", "mask", "error", "text"),
    [
        (None, "4,5", DeviceError, r"3 workers .* 2 devices .*'4,5'"),
        ([0, 1], None, DeviceError, "3 workers .* 2 devices"),
        ([0, 1, 2], "4,5", DeviceError, "no device 2 .*'4,5'"),
        ([0, 1, "gpu"], None, UsageError, "'gpu' is not a device"),
        ([0, 1, -1], None, UsageError, "-1 is not a device"),
        ([0, 1, True], None, UsageError, "True is not a device"),
    ],
)
def test_missing_devices_are_refused(wanted, mask, error, text):
    with pytest.raises(error, match=text):
        devices_of_ranks(3, wanted, environ(mask))


@pytest.mark.parametrize(
    ("spec", "mask", "gpus", "expected"),
    [
        ("auto", None, NODE, ["cuda:0", "cuda:1", "cuda:2", "cuda:3"]),
        ("auto", "3,1", NODE, ["cuda:3", "cuda:1"]),
        ("auto", "3,7,1", NODE, ["cuda:3"]),
        ("auto", "", NODE, ["cpu"]),
        ("auto", None, [], ["cpu"]),
        ("auto", "0,1", [], ["cpu"]),
        ("auto", None, MIG, ["cuda:1", "cuda:MIG-1111", "cuda:MIG-2222"]),
        ("auto", "MIG-2222", MIG, ["cuda:MIG-2222"]),
        ("cuda", "2", NODE, ["cuda:2"]),
        ("cuda:0,2", None, NODE, ["cuda:0", "cuda:2"]),
        ("2, 0", None, NODE, ["cuda:2", "cuda:0"]),
        ("1", "3,1", NODE, ["cuda:1"]),
        ("0", "GPU-dddd", NODE, ["cuda:GPU-dddd"]),
        ("GPU-bbbb", None, NODE, ["cuda:1"]),
        ("cuda:GPU-dddddddd", "3,1", NODE, ["cuda:3"]),
        ("MIG-1111", None, MIG, ["cuda:MIG-1111"]),
        ("cpu", "3,1", NODE, ["cpu"]),
        ("cpu:3", None, [], ["cpu", "cpu", "cpu"]),
    ],
)
def test_options_name_devices(spec, mask, gpus, expected):
    assert parse(spec, mask, gpus) == expected


@pytest.mark.parametrize(
    ("spec", "mask", "gpus", "error", "text"),
    [
        ("cuda", None, [], DeviceError, "no GPU; use --devices cpu"),
        ("0", None, [], DeviceError, "no GPU; use --devices cpu"),
        ("0", "", NODE, DeviceError, "no GPU in the inherited CUDA_VISIBLE_DEVICES=''"),
        ("4", None, NODE, DeviceError, r"no device 4; visible: 0 \(GPU-aaaaaaaa\), 1 .*, 3 "),
        (
            "2",
            "3,1",
            NODE,
            DeviceError,
            r"no device 2; visible: 0 \(GPU-dddddddd\), 1 \(GPU-bbbbbbbb\)",
        ),
        ("GPU-aaaa", "3,1", NODE, DeviceError, "no device GPU-aaaa"),
        ("0,0", None, NODE, UsageError, "repeats 0"),
        ("1,GPU-bbbb", None, NODE, UsageError, "repeats 1"),
        ("cuda:", None, NODE, UsageError, "'' is not a device"),
        ("", None, NODE, UsageError, "'' is not a device"),
        ("0,,1", None, NODE, UsageError, "'' is not a device"),
        ("gpu", None, NODE, UsageError, "'gpu' is not a device"),
        ("tpu:1", None, [], UsageError, "'tpu:1' is not a device"),
        ("-1", None, NODE, UsageError, "'-1' is not a device"),
        ("cpu:0", None, [], UsageError, "at least 1"),
        ("cpu:", None, [], UsageError, "cpu:N"),
        ("cpu:two", None, [], UsageError, "cpu:N"),
        ("cpu:99999999999", None, [], UsageError, "at most 9999"),
        ("cpu:" + 5000 * "9", None, [], UsageError, "at most 9999"),
    ],
)
def test_invalid_options_are_refused(spec, mask, gpus, error, text):
    with pytest.raises(error, match=text):
        parse(spec, mask, gpus)


@given(st.text(max_size=12))
def test_any_option_gives_devices_or_an_error(spec):
    with contextlib.suppress(UsageError, DeviceError):
        assert len(parse_devices(spec, {}, lambda: NODE)) >= 1


@pytest.fixture
def driver(monkeypatch):
    """Stand in for the driver's library: one whole GPU, and one with instances in slots 0 and 2."""
    instances = {0: "MIG-0000", 2: "MIG-2222"}

    def mode(handle):
        if handle == 0:
            raise pynvml.NVMLError_NotSupported
        return pynvml.NVML_DEVICE_MIG_ENABLE, pynvml.NVML_DEVICE_MIG_ENABLE

    def instance(handle, slot):
        if slot not in instances:
            raise pynvml.NVMLError_NotFound
        return instances[slot]

    fake = {
        "nvmlInit": lambda: None,
        "nvmlShutdown": lambda: None,
        "nvmlDeviceGetCount": lambda: 2,
        "nvmlDeviceGetHandleByIndex": lambda index: index,
        "nvmlDeviceGetUUID": lambda handle: handle if isinstance(handle, str) else f"GPU-{handle}",
        "nvmlDeviceGetMigMode": mode,
        "nvmlDeviceGetMaxMigDeviceCount": lambda _: 3,
        "nvmlDeviceGetMigDeviceHandleByIndex": instance,
    }
    for name, function in fake.items():
        monkeypatch.setattr(pynvml, name, function)


def test_whole_gpus_and_instances_are_listed(driver):
    assert list_gpus() == [Gpu("GPU-0"), Gpu("GPU-1", ("MIG-0000", "MIG-2222"))]


@pytest.mark.parametrize("code", [pynvml.NVML_ERROR_NOT_SUPPORTED, pynvml.NVML_ERROR_UNKNOWN])
def test_a_gpu_without_mig_support_is_not_partitioned(driver, monkeypatch, code):
    def fail(_):
        raise pynvml.NVMLError(code)

    monkeypatch.setattr(pynvml, "nvmlDeviceGetMigMode", fail)
    assert list_gpus() == [Gpu("GPU-0"), Gpu("GPU-1")]


@pytest.mark.parametrize("mask", ["0,1", "GPU-0,GPU-1"])
def test_a_partitioned_gpu_in_the_mask_means_its_first_partition(driver, capsys, mask):
    for _ in range(2):
        devices = parse_devices("auto", environ(mask))
    assert [device.mask for device in devices] == [mask.split(",")[0], "MIG-0000"]
    printed = capsys.readouterr().err
    assert printed.count("is a partitioned GPU (MIG): its first instance MIG-0000 is used") == 1


def test_a_lost_gpu_is_an_error_with_a_next_step(driver, monkeypatch):
    def lost(_):
        raise pynvml.NVMLError_GpuIsLost

    monkeypatch.setattr(pynvml, "nvmlDeviceGetHandleByIndex", lost)
    with pytest.raises(DeviceError, match="or use CPUs"):
        list_gpus()


def test_listing_gpus_starts_no_cuda():
    assert all(gpu.uuid.startswith("GPU-") for gpu in list_gpus())
    assert "libcuda.so" not in Path("/proc/self/maps").read_text()


def test_device_numbers_follow_the_drivers_order_by_default(monkeypatch):
    monkeypatch.delenv("CUDA_DEVICE_ORDER", raising=False)
    device = parse_devices("1", {}, lambda: NODE)[0]
    assert device.environment == {"CUDA_VISIBLE_DEVICES": "1", "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
    assert Device("cpu").environment == {"CUDA_VISIBLE_DEVICES": ""}
    monkeypatch.setenv("CUDA_DEVICE_ORDER", "FASTEST_FIRST")
    fastest = {"CUDA_DEVICE_ORDER": "FASTEST_FIRST"}
    device = parse_devices("1", fastest, lambda: NODE)[0]
    assert device.environment == {"CUDA_VISIBLE_DEVICES": "GPU-bbbbbbbb", **fastest}
    device = parse_devices("1", fastest | environ("3,2"), lambda: NODE)[0]
    assert device.environment["CUDA_VISIBLE_DEVICES"] == "2"


@pytest.mark.parametrize(
    ("code", "answers"),
    [
        (pynvml.NVML_ERROR_LIBRARY_NOT_FOUND, True),
        (pynvml.NVML_ERROR_DRIVER_NOT_LOADED, True),
        (pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH, False),
        (pynvml.NVML_ERROR_UNKNOWN, False),
    ],
)
def test_a_failing_driver_is_an_error_and_a_missing_one_is_not(monkeypatch, code, answers):
    def fail():
        raise pynvml.NVMLError(code)

    monkeypatch.setattr(pynvml, "nvmlInit", fail)
    if answers:
        assert list_gpus() == []
        assert parse_devices("auto", {}) == [Device("cpu")]
    else:
        with pytest.raises(DeviceError, match="cannot list its GPUs"):
            parse_devices("auto", {})
        assert parse_devices("cpu", {}) == [Device("cpu")]

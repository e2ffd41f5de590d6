"""Devices of workers, their properties, and the environment variables for devices and threads.

CUDA is not initialized.
"""

import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Literal, TypeAlias

from virnucpro.console import say
from virnucpro.errors import DeviceError, UsageError

Kind: TypeAlias = Literal["cpu", "cuda"]
"""Kind of a device: its type name in torch."""

MASK_VARIABLE = "CUDA_VISIBLE_DEVICES"

ORDER_VARIABLE = "CUDA_DEVICE_ORDER"

DRIVERS_ORDER = "PCI_BUS_ID"
"""Device order of the driver, nvidia-smi and schedulers. CUDA's own default: fastest GPU first."""

_THREAD_NUMBERS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "RAYON_NUM_THREADS")
"""Variables that OpenMP, MKL and the tokenizers' thread pool read when they start."""

_WAIT_POLICY = "OMP_WAIT_POLICY"
"""PASSIVE: waiting threads sleep. By default, waiting threads use the CPU in a loop; on a busy
machine, a worker with two threads then takes five times as long."""

_MASK_ENTRY = re.compile(r"\d+|(GPU|MIG)-[\w/-]+")


@dataclass(frozen=True, slots=True)
class Device:
    """Device of a worker.

    Attributes
    ----------
    kind
        ``cpu`` or ``cuda``. Torch needs no device number: a worker sees only one device.
    mask
        The device's entry for CUDA_VISIBLE_DEVICES (``"5"``, ``"GPU-..."``, ``"MIG-..."``); None
        for a CPU.
    """

    kind: Kind
    mask: str | None = None

    def __str__(self) -> str:
        return self.kind if self.mask is None else f"{self.kind}:{self.mask}"

    @property
    def environment(self) -> dict[str, str]:
        """Environment variables, with values, that make only this device visible to a process.

        They also make CUDA number the devices in the order of the driver (PCI_BUS_ID), unless this
        process has another value of CUDA_DEVICE_ORDER.
        """
        if self.mask is None:
            return {MASK_VARIABLE: ""}
        order = os.environ.get(ORDER_VARIABLE, DRIVERS_ORDER)
        return {MASK_VARIABLE: self.mask, ORDER_VARIABLE: order}


@dataclass(frozen=True, slots=True)
class Gpu:
    """A GPU of this machine, as listed by its driver.

    Attributes
    ----------
    uuid
        The UUID of the GPU, ``GPU-...``.
    partitions
        Names of the GPU's MIG instances, ``MIG-...``; empty if the GPU is not partitioned.
    """

    uuid: str
    partitions: tuple[str, ...] = ()


def inherited_mask(environ: Mapping[str, str]) -> tuple[str, ...] | None:
    """Return the devices in CUDA_VISIBLE_DEVICES, as inherited from the parent process.

    Returns
    -------
    The entries of the variable, in order; empty for ``""``, ``"-1"`` or a scheduler's
    ``"NoDevFiles"``. As in CUDA, the first invalid entry ends the list, and a repeated device makes
    the list empty. None if the variable is not set, so that all devices are visible.
    """
    text = environ.get(MASK_VARIABLE)
    if text is None:
        return None
    entries: list[str] = []
    for entry in (piece.strip() for piece in text.split(",")):
        if not _MASK_ENTRY.fullmatch(entry):
            break
        if entry in entries:
            return ()
        entries.append(entry)
    return tuple(entries)


def devices_of_ranks(
    world_size: int, devices: Sequence[int | str | Device] | None, environ: Mapping[str, str]
) -> list[Device]:
    """Return the device of each rank, without access to the driver.

    Parameters
    ----------
    world_size
        Number of ranks.
    devices
        Rank r gets the r-th entry: a `Device`, a number (index into CUDA_VISIBLE_DEVICES, or
        device number if the variable is not set), a UUID or MIG name, or ``"cpu"``. None: rank r
        gets the r-th entry of CUDA_VISIBLE_DEVICES, a CPU if the variable is empty, or device
        number r if it is not set.

    Raises
    ------
    DeviceError
        If there are fewer devices than ranks, or a device is not in CUDA_VISIBLE_DEVICES.
    UsageError
        If an entry is invalid.
    """
    mask = inherited_mask(environ)
    if devices is None:
        if mask == ():
            return [Device("cpu")] * world_size
        devices = range(world_size) if mask is None else range(len(mask))
    if len(devices) < world_size:
        raise DeviceError(
            f"{world_size} workers were requested, but there are {len(devices)} devices"
            f"{_of_mask(mask)}: start fewer workers or give more devices."
        )
    return [_resolve(device, mask) for device in devices[:world_size]]


def parse_devices(
    spec: str,
    environ: Mapping[str, str],
    gpus: Callable[[], Sequence[Gpu]] | None = None,
) -> list[Device]:
    """Return the devices of a ``--devices`` option on this machine.

    Parameters
    ----------
    spec
        ``auto`` (every visible GPU; without a GPU or with a torch without CUDA, one CPU worker),
        ``cpu``, ``cpu:N`` (N CPU workers), ``cuda`` (every visible GPU), ``cuda:0,2`` or ``0,2``
        (indices of visible GPUs), ``GPU-...`` and ``MIG-...`` names.
    environ
        The process's environment, with CUDA_VISIBLE_DEVICES.
    gpus
        Returns the machine's GPUs; `list_gpus` by default.

    Returns
    -------
    One device per rank, at least one.

    Raises
    ------
    UsageError
        If `spec` is invalid or repeats a device.
    DeviceError
        If a device does not exist or is not visible.
    """
    spec = spec.strip()
    kind, colon, rest = spec.partition(":")
    given = f"--devices {spec}"
    if kind == "cpu":
        if colon and not (rest.isdecimal() and len(rest) <= 4 and int(rest)):
            raise UsageError(f"{given}: use cpu:N with N workers, at least 1 and at most 9999.")
        return [Device("cpu")] * int(rest or 1)
    named = spec not in {"auto", "cuda"}
    wanted = _split(rest if kind == "cuda" else spec, given) if named else []
    mask = inherited_mask(environ)
    visible = {} if spec == "auto" and _torch_without_cuda() else visible_gpus(environ, gpus)
    if not visible and spec != "auto":
        why = _why_unusable(environ, gpus) if mask else f"there is no GPU{_of_mask(mask)}"
        raise DeviceError(f"{given}: {why}; use --devices cpu.")
    if wanted:
        return _choose(given, wanted, visible)
    return [Device("cuda", entry) for entry in visible] or [Device("cpu")]


def thread_variables(threads: int | None, environ: Mapping[str, str]) -> dict[str, str]:
    """Return the environment variables that limit the threads of a worker, with their values.

    The worker's process must set these variables before it imports numeric libraries.

    Parameters
    ----------
    threads
        Number of threads per library; None: no limit is set.
    environ
        The parent's environment. If it sets OMP_WAIT_POLICY, that value is kept.
    """
    variables = {} if threads is None else dict.fromkeys(_THREAD_NUMBERS, str(threads))
    if _WAIT_POLICY not in environ:
        variables[_WAIT_POLICY] = "PASSIVE"
    return variables


def visible_gpus(
    environ: Mapping[str, str], gpus: Callable[[], Sequence[Gpu]] | None = None
) -> dict[str, str]:
    """Return the GPUs that this process may use, including MIG instances.

    Parameters
    ----------
    environ, gpus
        As for `parse_devices`.

    Returns
    -------
    A dict in CUDA's order. The key is the entry of a GPU for CUDA_VISIBLE_DEVICES; the value is its
    UUID. A partitioned GPU in CUDA_VISIBLE_DEVICES is replaced by its first MIG instance. If
    CUDA_DEVICE_ORDER is not the driver's order and CUDA_VISIBLE_DEVICES is not set, the keys are
    UUIDs, which do not depend on the order.

    Raises
    ------
    DeviceError
        If the driver is installed but reports an error.
    """
    mask, listed = inherited_mask(environ), (gpus or list_gpus)()
    by_name = environ.get(ORDER_VARIABLE, DRIVERS_ORDER) != DRIVERS_ORDER
    if mask is None:
        whole = {
            gpu.uuid if by_name else str(index): gpu.uuid
            for index, gpu in enumerate(listed)
            if not gpu.partitions
        }
        return whole | {name: name for gpu in listed for name in gpu.partitions}
    visible: dict[str, str] = {}
    for entry in mask:
        uuid = _uuid_behind(entry, listed)
        if uuid is None:  # as for CUDA, the list ends here
            break
        first = next(
            (gpu.partitions[0] for gpu in listed if gpu.uuid == uuid and gpu.partitions), ""
        )
        if first:
            _say_once(f"{entry} is a partitioned GPU (MIG): its first instance {first} is used.")
        visible[first or entry] = first or uuid
    return visible


def unused_gpus(
    environ: Mapping[str, str], *, useful: bool, gpus: Callable[[], Sequence[Gpu]] | None = None
) -> str:
    """Return why a computation cannot use the GPUs of CUDA_VISIBLE_DEVICES or of the machine.

    Parameters
    ----------
    useful
        Whether the computation could use a GPU.
    gpus
        As for `parse_devices`.

    Returns
    -------
    A sentence; "" if there is no GPU, or one that can be used.
    """
    mask = inherited_mask(environ)
    if not useful:
        given = f"{MASK_VARIABLE}={environ.get(MASK_VARIABLE)}"
        return f"{given} has no effect: this model computes on CPUs only" if mask else ""
    if not (_torch_without_cuda() if visible_gpus(environ, gpus) else mask):
        return ""
    return (
        f"{_why_unusable(environ, gpus)}. CPUs compute, which can take days "
        "instead of minutes. In a container, pass the GPU on (apptainer --nv, docker --gpus); to "
        "use CPUs without this warning, give --devices cpu:N."
    )


def _why_unusable(environ: Mapping[str, str], gpus: Callable[[], Sequence[Gpu]] | None) -> str:
    mask = environ.get(MASK_VARIABLE)
    named = "this machine has" if mask is None else f"{MASK_VARIABLE}={mask} names"
    reasons = [f"torch {version} is a build without CUDA" for version in _torch_without_cuda()]
    if not visible_gpus(environ, gpus):
        listed = (gpus or list_gpus)()
        missing = "the NVIDIA driver lists no such GPU" if listed else "there is no NVIDIA driver"
        reasons.insert(0, missing)
    return f"{named} a GPU, but {' and '.join(reasons)}"


def _torch_without_cuda() -> list[str]:
    """Return the version of an installed torch without CUDA, which is not imported."""
    spec = find_spec("torch")
    if spec is None or spec.origin is None:
        return []
    text = Path(spec.origin).with_name("version.py").read_text()
    without = re.search(r"^cuda\b.*= None$", text, re.MULTILINE)
    return re.findall(r"^__version__ = '(.+)'", text, re.MULTILINE) if without else []


def list_gpus() -> list[Gpu]:
    """Return the machine's NVIDIA GPUs in the driver's order; empty if there is no driver.

    Raises
    ------
    DeviceError
        If the driver is installed but reports an error.
    """
    import pynvml  # noqa: PLC0415 - not needed for ranks on a CPU

    try:
        pynvml.nvmlInit()
        try:
            handles = map(pynvml.nvmlDeviceGetHandleByIndex, range(pynvml.nvmlDeviceGetCount()))
            return [Gpu(pynvml.nvmlDeviceGetUUID(gpu), _partitions(gpu)) for gpu in handles]
        finally:
            pynvml.nvmlShutdown()
    except (pynvml.NVMLError_LibraryNotFound, pynvml.NVMLError_DriverNotLoaded):
        return []
    except pynvml.NVMLError as error:
        raise DeviceError(
            f"the NVIDIA driver cannot list its GPUs: {error}. Check nvidia-smi, repair the "
            "driver, or use CPUs (cpu, or cpu:N for N workers)."
        ) from error


def _partitions(handle: object) -> tuple[str, ...]:
    """Return the names of a GPU's MIG instances (partitions); empty if there are none."""
    import pynvml  # noqa: PLC0415 - not needed for ranks on a CPU

    try:
        current, _pending = pynvml.nvmlDeviceGetMigMode(handle)
    except pynvml.NVMLError:  # not supported by this GPU or driver
        return ()
    if current != pynvml.NVML_DEVICE_MIG_ENABLE:
        return ()
    names = []
    for slot in range(pynvml.nvmlDeviceGetMaxMigDeviceCount(handle)):
        try:
            instance = pynvml.nvmlDeviceGetMigDeviceHandleByIndex(handle, slot)
        except pynvml.NVMLError_NotFound:  # an empty slot
            continue
        names.append(pynvml.nvmlDeviceGetUUID(instance))
    return tuple(names)


def _uuid_behind(entry: str, gpus: Sequence[Gpu]) -> str | None:
    if entry.isdigit():
        return gpus[int(entry)].uuid if int(entry) < len(gpus) else None
    if entry.startswith("MIG-"):
        return entry if gpus else None
    return next((gpu.uuid for gpu in gpus if gpu.uuid.startswith(entry)), None)


_say_once = cache(say)


def _split(text: str, given: str) -> list[str]:
    wanted = [piece.strip() for piece in text.split(",")]
    for entry in wanted:
        if not _MASK_ENTRY.fullmatch(entry):
            raise UsageError(
                f"{given}: {entry!r} is not a device; use auto, cpu, cpu:N, cuda, cuda:0,2 or "
                "GPU-... names."
            )
    return wanted


def _choose(given: str, wanted: Sequence[str], visible: Mapping[str, str]) -> list[Device]:
    entries = [_entry(given, entry, visible) for entry in wanted]
    twice = sorted({entry for entry in entries if entries.count(entry) > 1})
    if twice:
        raise UsageError(f"{given} repeats {', '.join(twice)}; give each device once.")
    return [Device("cuda", entry) for entry in entries]


def _entry(given: str, wanted: str, visible: Mapping[str, str]) -> str:
    """Return the CUDA_VISIBLE_DEVICES entry of the device `wanted`; raise DeviceError if missing.

    `wanted` is an index into the visible devices or the start of a UUID. `visible` maps each entry
    to the UUID of its device. `given` is the user's option, for the error message.
    """
    entries = list(visible)
    if wanted.isdigit():
        if int(wanted) < len(entries):
            return entries[int(wanted)]
    else:
        for entry, uuid in visible.items():
            if uuid.startswith(wanted):
                return entry
    there = ", ".join(f"{index} ({uuid})" for index, uuid in enumerate(visible.values()))
    raise DeviceError(f"{given}: no device {wanted}; visible: {there}.")


def _resolve(device: int | str | Device, mask: Sequence[str] | None) -> Device:
    if isinstance(device, Device):
        return device
    text = str(device).strip()
    if text == "cpu":
        return Device("cpu")
    if not _MASK_ENTRY.fullmatch(text):
        raise UsageError(
            f"{device!r} is not a device: give a number, a GPU-... or MIG-... name, or 'cpu'."
        )
    if mask is None or not text.isdigit():
        return Device("cuda", text)
    if int(text) >= len(mask):
        raise DeviceError(f"there is no device {text}{_of_mask(mask)}: use 0 for the first device.")
    return Device("cuda", mask[int(text)])


def _of_mask(mask: Sequence[str] | None) -> str:
    return "" if mask is None else f" in the inherited {MASK_VARIABLE}={','.join(mask)!r}"


@dataclass(frozen=True, slots=True)
class GpuFacts:
    """Properties of a GPU or MIG instance.

    Attributes
    ----------
    uuid
        UUID of the device, ``GPU-...`` or ``MIG-...``.
    total_memory, free_memory
        Memory of the device (GPU or MIG instance) in bytes.
    mig
        Whether the device is a MIG instance.
    """

    name: str
    uuid: str
    total_memory: int
    free_memory: int
    mig: bool


def gpu_facts(uuid: str) -> GpuFacts:
    """Return the properties of the device with this UUID (see `list_gpus`).

    Raises
    ------
    DeviceError
        If the driver is missing, or reports an error for this device.
    """
    import pynvml  # noqa: PLC0415 - not needed for workers on a CPU

    try:
        pynvml.nvmlInit()
        try:
            handle = pynvml.nvmlDeviceGetHandleByUUID(uuid)
            memory = pynvml.nvmlDeviceGetMemoryInfo(handle)
            name = pynvml.nvmlDeviceGetName(handle)
        finally:
            pynvml.nvmlShutdown()
    except pynvml.NVMLError as error:
        raise DeviceError(
            f"the NVIDIA driver reports an error for {uuid}: {error}. Check nvidia-smi, or choose "
            "other devices."
        ) from error
    return GpuFacts(
        str(name), uuid, int(memory.total), int(memory.free), mig=uuid.startswith("MIG-")
    )

"""Name and memory of a GPU or MIG instance, from the driver. CUDA is not initialized."""

from dataclasses import dataclass

from virnucpro.errors import DeviceError

__all__ = ["GpuFacts", "gpu_facts"]


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

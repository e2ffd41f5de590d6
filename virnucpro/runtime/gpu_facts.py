"""What the driver says of one GPU, or of one instance of a partitioned one. CUDA is not asked."""

from dataclasses import dataclass

from virnucpro.errors import DeviceError

__all__ = ["GpuFacts", "gpu_facts"]


@dataclass(frozen=True, slots=True)
class GpuFacts:
    """What the driver says.

    Attributes
    ----------
    uuid
        ``GPU-...`` or ``MIG-...``.
    total_memory, free_memory
        Bytes; of an instance its own.
    mig
        Whether it is an instance of a partitioned GPU.
    """

    name: str
    uuid: str
    total_memory: int
    free_memory: int
    mig: bool


def gpu_facts(uuid: str) -> GpuFacts:
    """Ask the driver about a device by its name, as `list_gpus` gives it.

    Raises
    ------
    DeviceError
        When there is no driver, or it does not answer for that device.
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
            f"the NVIDIA driver does not answer for {uuid}: {error}. Look at nvidia-smi, or name "
            "devices that work."
        ) from error
    return GpuFacts(
        str(name), uuid, int(memory.total), int(memory.free), mig=uuid.startswith("MIG-")
    )

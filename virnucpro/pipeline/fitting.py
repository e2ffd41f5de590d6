"""Whether a job's encoders fit into its devices at all, told before a run folder is made."""

import os
from collections import Counter
from collections.abc import Sequence

from virnucpro.encoders.machine_memory import usable_memory
from virnucpro.encoders.memory_needed import require_room
from virnucpro.encoders.sizes import shapes_of
from virnucpro.pipeline.job import Job
from virnucpro.runtime.devices import Device, visible_gpus
from virnucpro.runtime.gpu_facts import gpu_facts

__all__ = ["refuse_what_does_not_fit"]


def refuse_what_does_not_fit(job: Job, devices: Sequence[Device]) -> None:
    """Refuse encoders that take more than the whole memory of a device.

    A rank holds all encoders of its job, and all ranks on a CPU share its memory. What is free of
    that may change, and is not asked.

    Raises
    ------
    DeviceError
        With what is wanted, what there is, and what to do.
    """
    names = " and ".join(spec.name for spec in job.encoders)
    shapes = shapes_of(*job.encoders)
    for device, ranks in Counter(devices).items():
        require_room(names, shapes, job.settled_precision, str(device), _memory(device), ranks)


def _memory(device: Device) -> int | None:
    """Say how many bytes a device has; None for a GPU that the driver does not list."""
    if device.kind == "cpu":
        return usable_memory()
    uuid = visible_gpus(os.environ).get(device.mask or "")
    return None if uuid is None else gpu_facts(uuid).total_memory

"""Checks before anything is computed: precision, device memory, disk space."""

import os
import shutil
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from virnucpro.encoders.memory.memory_needed import require_room
from virnucpro.encoders.registry import shapes_of
from virnucpro.errors import RunError
from virnucpro.machine import usable_memory
from virnucpro.pipeline.execution import Execution
from virnucpro.pipeline.jobs.job import Job
from virnucpro.pipeline.jobs.precision import precision_on, weight_bytes
from virnucpro.pipeline.run.manifest import is_manifest, read_manifest
from virnucpro.pipeline.run.session import Session
from virnucpro.run_dir import RunDirectory
from virnucpro.runtime.devices import Device, parse_devices, visible_gpus
from virnucpro.runtime.gpu_facts import gpu_facts
from virnucpro.store.coverage import Coverage
from virnucpro.store.space import space_needed

__all__ = ["refuse_small_disk", "refuse_what_does_not_fit", "with_precision"]

_FLOAT_BYTES = {"fp16": 2, "fp32": 4, "none": 0}


def with_precision(job: Job, execution: Execution) -> Job:
    """Resolve the precision ``auto`` of a job; return a job of another precision unchanged.

    A resumed run keeps its precision on all devices. A new run follows `precision_on`. The
    precision is part of the run's fingerprint.

    Raises
    ------
    UsageError, DeviceError
        If the devices are malformed or missing.
    NotARunError
        If the run to resume cannot be read.
    """
    if job.precision != "auto":
        return job
    run = RunDirectory(execution.outdir)
    if execution.resume and run.run_json.is_file() and is_manifest(run.run_json):
        return replace(job, precision=read_manifest(run).parameters["precision"])
    kind = parse_devices(execution.devices, os.environ)[0].kind
    n_bytes = weight_bytes(job.encoders)
    return replace(job, precision=precision_on("auto", kind, n_bytes, job.verified_precisions))


def refuse_what_does_not_fit(job: Job, devices: Sequence[Device]) -> None:
    """Refuse encoders that need more than the whole memory of a device.

    A rank holds all encoders of its job; all ranks on a CPU share its memory. Free memory may
    change, and is not compared.

    Raises
    ------
    DeviceError
        With the needed memory, the memory of the device, and advice.
    """
    names = " and ".join(spec.name for spec in job.encoders)
    shapes = shapes_of(*job.encoders)
    for device, ranks in Counter(devices).items():
        require_room(names, shapes, job.settled_precision, str(device), _memory(device), ranks)


def _memory(device: Device) -> int | None:
    """Return the bytes of a device; None for a GPU that the driver does not list."""
    if device.kind == "cpu":
        return usable_memory()
    uuid = visible_gpus(os.environ).get(device.mask or "")
    return None if uuid is None else gpu_facts(uuid).total_memory


def refuse_small_disk(session: Session, job: Job, coverage: Coverage) -> None:
    """Compare the bytes that the run will write with the free disk space.

    Raises
    ------
    RunError
        If the disk is too small. The run stays as it is; a resume continues it.
    """
    index, bounds = session.index, coverage.bounds
    needed = space_needed(
        units=len(coverage.missing),
        rows=sum(int(bounds[unit + 1] - bounds[unit]) for unit in coverage.missing),
        vector_bytes=sum(one.dim for one in job.encoders) * _FLOAT_BYTES[job.embeddings],
        records=index.n_records,
        windows=index.n_windows,
        items=index.n_items,
        name_bytes=index.name_bytes / max(1, index.n_records),
    )
    disk = shutil.disk_usage(session.run.root)
    if disk.total and needed.total > disk.free:  # some network mounts have sizes of 0
        parts = {
            "segments": needed.segments,
            "embeddings.h5": needed.embeddings,
            "tables": needed.tables,
        }
        listed = ", ".join(f"{name} {count / 1e6:,.1f} MB" for name, count in parts.items())
        raise RunError(
            f"{session.run.root}: the run needs about {needed.total / 1e6:,.1f} MB of disk "
            f"({listed}), {disk.free / 1e6:,.1f} MB are free there. Free space and rerun with "
            "--resume, choose an output folder on another disk, or store no vectors (--embeddings "
            "none)."
        )

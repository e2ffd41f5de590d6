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
from virnucpro.store.space import SpaceNeeded, space_needed

__all__ = ["refuse_small_disk", "refuse_what_does_not_fit", "with_precision"]

_FLOAT_BYTES = {"fp16": 2, "fp32": 4, "none": 0}


def with_precision(job: Job, execution: Execution) -> Job:
    """Resolve the precision of a job that says ``auto``; return any other job unchanged.

    A resumed run keeps its precision, whatever devices it has now. A new run follows
    `default_precision`. The precision is part of the run's fingerprint.

    Raises
    ------
    UsageError, DeviceError
        When the devices are malformed or missing.
    NotARunError
        When the run to resume cannot be read.
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


def refuse_small_disk(session: Session, job: Job, coverage: Coverage) -> None:
    """Compare what the run has yet to write with what is free.

    Raises
    ------
    RunError
        When it does not fit, with both figures. The run stays as it is: a resume goes on with it.
    """
    free = _free_bytes(session)
    needed = _needed(session, job, coverage)
    if free is not None and needed.total > free:
        raise RunError(
            f"{session.run.root}: the run needs about {_size(needed.total)} of disk (segments "
            f"{_size(needed.segments)}, embeddings.h5 {_size(needed.embeddings)}, tables "
            f"{_size(needed.tables)}), {_size(free)} are free there. Free space and repeat with "
            "--resume, choose an output folder on another disk, or keep no vectors "
            "(--embeddings none)."
        )


def _needed(session: Session, job: Job, coverage: Coverage) -> SpaceNeeded:
    index, bounds = session.index, coverage.bounds
    dim = sum(encoder.dim for encoder in job.encoders)
    return space_needed(
        units=len(coverage.missing),
        rows=sum(int(bounds[unit + 1] - bounds[unit]) for unit in coverage.missing),
        vector_bytes=dim * _FLOAT_BYTES[job.embeddings],
        records=index.n_records,
        windows=index.n_windows,
        items=index.n_items,
        name_bytes=index.name_bytes / max(1, index.n_records),
    )


def _free_bytes(session: Session) -> int | None:
    """None where the file system does not tell, as some network mounts do not."""
    usage = shutil.disk_usage(session.run.root)
    return usage.free if usage.total else None


def _size(count: int) -> str:
    for unit, scale in (("GB", 10**9), ("MB", 10**6)):
        if count >= scale:
            return f"{count / scale:.1f} {unit}"
    return f"{count:,} bytes"

"""Choices and checks before anything is computed: devices, precision, memory, disk space."""

import math
import os
import shutil
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Final
from urllib.parse import quote

from virnucpro.encoders.base import Precision
from virnucpro.encoders.memory import PROCESS_BYTES, bytes_of, require_memory, weight_bytes
from virnucpro.encoders.registry import shapes_of
from virnucpro.errors import RunError
from virnucpro.machine import usable_cpus, usable_memory
from virnucpro.run.execution import Execution
from virnucpro.run.job import Job
from virnucpro.run.manifest import Manifest
from virnucpro.run.options import PredictOptions
from virnucpro.run.reporter import Reporter
from virnucpro.run.run import Run
from virnucpro.runtime.devices import (
    Device,
    Kind,
    gpu_facts,
    parse_devices,
    unused_gpus,
    visible_gpus,
)
from virnucpro.sequences.index import SequenceIndex

_LARGE: Final = 100_000_000
"""Models with at least this many bytes of weights at fp32 use half precision on fast devices."""

_FLOAT_BYTES: Final = {"fp16": 2, "fp32": 4, "none": 0}

# Bytes on disk, measured on runs of `mini` and rounded up.
_SEGMENT_BYTES: Final = 12 << 10
"""Fixed size of a segment: HDF5 metadata, the user block, and rounding to file-system blocks."""
_ROW_BYTES: Final = 17
"""Size of a row in a segment without its vector: row number, two scores, state."""
_ITEM_BYTES: Final = 48
"""Size of an item without vector and name: HDF5 heap entry, state, scores as text."""
_RECORD_BYTES: Final = 128
"""Size of the table line of a record, without its name."""
_WINDOW_BYTES: Final = 96
"""Size of the lines of a window in two tables, without names."""
_HEADER_BYTES: Final = 52
"""Size of the header of a sequence and of the line ends, without its name, file and number."""
_WITH_LINE_ENDS: Final = 81 / 80
_NUMBER_BYTES: Final = 8
"""Length of the number of a record in its file."""
_SUFFIX_BYTES: Final = 12
"""Length of the suffix that turns a record name into an item name, such as ``_chunk_17F1``."""
_FIXED_BYTES: Final = 64 << 10
"""Total size of run.json, status.json, plans, logs, and the header of embeddings.h5."""


def devices_of(job: Job, execution: Execution) -> list[Device]:
    """Return the devices of ``--devices``, one device per rank.

    On a machine without GPUs, ``auto`` selects one CPU rank per thread, if the memory suffices. On
    a busy machine, two ranks with one thread each are much faster than one rank with two threads,
    because the threads of one rank wait for each other. On an idle machine, the speed is equal.
    A run inside the calling process has one CPU rank.

    Raises
    ------
    UsageError, DeviceError
        If the devices are invalid or missing.
    """
    devices = parse_devices(execution.devices, os.environ)
    many = execution.devices.strip() == "auto" and not execution.in_process
    if not many or devices != [Device("cpu")]:
        return devices
    weights = weight_bytes(shapes_of(*job.encoders), job.settled_precision, "cpu")
    return devices * ranks_that_fit(threads_of_rank(execution, 1), weights, usable_memory())


def report_unused_gpus(job: Job, execution: Execution, reporter: Reporter) -> None:
    """Report `unused_gpus` if the user left the devices to the program."""
    useful = bool(shapes_of(*job.encoders))
    if execution.devices.strip() == "auto" and (text := unused_gpus(os.environ, useful=useful)):
        (reporter.warn if useful else reporter.stage)(text)


def ranks_that_fit(threads: int, weights: int, memory: int) -> int:
    """Return the number of CPU ranks: one per thread, limited by half of the memory, at least 1.

    Parameters
    ----------
    threads
        CPU threads for all ranks together.
    weights
        Memory of the weights of one rank in bytes; a rank needs `PROCESS_BYTES` besides.
    memory
        Memory of the machine in bytes.
    """
    return max(1, min(threads, memory // 2 // (weights + PROCESS_BYTES)))


def threads_of_rank(execution: Execution, ranks: int) -> int:
    """Return the CPU threads of each rank if `ranks` ranks share all threads; at least 1."""
    return max(1, (execution.threads or usable_cpus()) // ranks)


def default_precision(kind: Kind, n_bytes: int) -> Precision:
    """Return the precision for ``auto``: fp16 for large encoders on a GPU, otherwise fp32.

    fp16 is as fast as bf16 on a GPU, with 1/8 of the rounding error.

    Parameters
    ----------
    kind
        Kind of device.
    n_bytes
        Bytes of all encoders' weights at fp32; the precision of the files is ignored.
    """
    return "fp16" if kind == "cuda" and n_bytes >= _LARGE else "fp32"


def auto_precision(job: Job, kind: Kind) -> Job:
    """Replace the precision ``auto`` of a job for devices of this kind; return others unchanged."""
    if job.options.precision != "auto":
        return job
    size = bytes_of(shapes_of(*job.encoders), "fp32")
    return job.with_options(precision=default_precision(kind, size))


def settled(job: Job, execution: Execution, manifest: Manifest | None = None) -> Job:
    """Return the job with everything that it leaves to the run that is resumed, or to the devices.

    The run with this manifest decides about stored vectors, least length and precision, unless the
    job does. A new run uses `default_precision`.

    Raises
    ------
    UsageError, DeviceError
        If the devices are malformed or missing.
    """
    if manifest is None:
        if job.options.precision != "auto":
            return job
        return auto_precision(job, parse_devices(execution.devices, os.environ)[0].kind)
    own = manifest.parameters
    if job.options.embeddings is None:
        job = job.with_options(embeddings=own["embeddings"])
    if isinstance(job.options, PredictOptions) and job.options.min_length is None:
        job = replace(job, index=replace(job.index, min_length=own.get("min_length", 0)))
    if job.options.precision == "auto":
        job = job.with_options(precision=own["precision"])
    return job


def usable_devices(job: Job, execution: Execution) -> list[Device]:
    """Return the devices of ``--devices``, one per rank, after `check_device_memory`.

    Errors are those of `devices_of` and `check_device_memory`.
    """
    devices = devices_of(job, execution)
    check_device_memory(job, devices)
    return devices


def check_device_memory(job: Job, devices: Sequence[Device]) -> None:
    """Raise DeviceError if the encoders need more than the total memory of a device.

    Each rank loads all encoders of the job; all CPU ranks share the memory of the machine. The
    free memory is not checked, because it can change.

    Raises
    ------
    DeviceError
        If the memory is too small. The message states the needed memory and the total memory.
    """
    names = " and ".join(spec.name for spec in job.encoders)
    shapes = shapes_of(*job.encoders)
    for device, ranks in Counter(devices).items():
        require_memory(names, shapes, job.settled_precision, str(device), _memory(device), ranks)


def _memory(device: Device) -> int | None:
    """Return the memory of a device in bytes; None for a GPU that the driver does not list."""
    if device.kind == "cpu":
        return usable_memory()
    uuid = visible_gpus(os.environ).get(device.mask or "")
    return None if uuid is None else gpu_facts(uuid).total_memory


def check_disk_space(run: Run, job: Job, missing: Sequence[int]) -> None:
    """Raise RunError if the free disk space is smaller than the files that the run will write.

    Raises
    ------
    RunError
        If the disk is too small. The run is unchanged and can be resumed.
    """
    row_bytes = vector_bytes(job)
    if job.pooling.per_token:
        row_bytes *= math.ceil(run.index.row_lengths.mean())
    parts = space_needed(run.index, len(missing), run.n_rows_of(missing), row_bytes)
    if job.formats:
        parts["other formats"] = 2 * len(job.formats) * parts["embeddings.h5"]
    needed = sum(parts.values()) + _FIXED_BYTES
    disk = shutil.disk_usage(run.paths.root)
    if disk.total and needed > disk.free:  # some network mounts have sizes of 0
        listed = ", ".join(f"{name} {count / 1e6:,.1f} MB" for name, count in parts.items())
        can_drop = job.command == "predict" and vector_bytes(job) > 0
        smaller = ", or store no vectors (--embeddings none)" if can_drop else ""
        raise RunError(
            f"{run.paths.root}: the run needs about {needed / 1e6:,.1f} MB of disk "
            f"({listed}), but {disk.free / 1e6:,.1f} MB are free. Free space and rerun with "
            f"--resume, choose an output folder on another disk{smaller}."
        )


def vector_bytes(job: Job) -> int:
    """Return the bytes of the stored vectors of all encoders for one row."""
    return sum(spec.dim for spec in job.encoders) * _FLOAT_BYTES[job.stored_dtype]


def space_needed(index: SequenceIndex, units: int, rows: int, row_bytes: int) -> dict[str, int]:
    """Return an upper estimate of the bytes that a run still writes, per kind of file.

    Parameters
    ----------
    index
        Index of the complete run. All outputs are counted, because old outputs are replaced only
        after the new outputs are written.
    units, rows
        Number of units, and of rows, that have no segment.
    row_bytes
        Bytes of the stored vectors of all encoders for one row; 0 in a run without embeddings.
    """
    name, items = index.name_bytes / max(1, index.n_records) + _SUFFIX_BYTES, index.n_items
    origin = max(map(len, map(quote, index.input_names)), default=0) + _NUMBER_BYTES
    tables = index.n_records * (name + origin + _RECORD_BYTES)
    tables += index.n_windows * (2 * name + origin + _WINDOW_BYTES)
    sequences = index.n_records * (2 * (name + origin) + _HEADER_BYTES)
    sequences += index.stored_letters * (2 if index.has_qualities else _WITH_LINE_ENDS)
    return {
        "segments": units * _SEGMENT_BYTES + rows * (row_bytes + _ROW_BYTES),
        "embeddings.h5": round(items * (row_bytes + name + _ITEM_BYTES)) if row_bytes else 0,
        "tables": round(tables + items * (name + _ITEM_BYTES)),
        "sequences": 0 if index.spec.kind == "whole" else round(sequences),
    }

"""With which kind of number encoders compute where nobody said so."""

import os
from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Final, Literal

from virnucpro.encoders.base import EncoderSpec, Precision
from virnucpro.encoders.memory_needed import bytes_of
from virnucpro.encoders.sizes import shapes_of
from virnucpro.pipeline.execution import Execution
from virnucpro.pipeline.job import Job, PrecisionChoice, Reporter, SilentReporter
from virnucpro.pipeline.manifest import is_manifest, read_manifest
from virnucpro.pipeline.trial import try_bf16
from virnucpro.run_dir import RunDirectory
from virnucpro.runtime.cpu_facts import cpu_flags
from virnucpro.runtime.devices import parse_devices

__all__ = [
    "default_precision",
    "precision_on",
    "weight_bytes",
    "with_precision",
]

_LARGE: Final = 100_000_000
"""Bytes of weights, at fp32, from which on half precision is worth its rounding."""


def default_precision(
    kind: Literal["cpu", "cuda"], flags: Collection[str], n_bytes: int
) -> Precision:
    """Say what to compute with.

    Small encoders compute at fp32: they are fast anyway. Large ones compute at fp16 on a GPU, as
    fast as bf16 and eight times nearer to fp32, and at bf16 on a CPU that multiplies matrices of
    it, where that agrees with fp32 (see `with_precision`); other CPUs gain too little.

    Parameters
    ----------
    kind
        Of the device.
    flags
        What the CPU can do, in Linux's names.
    n_bytes
        Weights of all encoders at fp32; see `weight_bytes`.
    """
    if n_bytes < _LARGE:
        return "fp32"
    if kind == "cuda":
        return "fp16"
    return "bf16" if "amx_bf16" in flags else "fp32"


def weight_bytes(encoders: Sequence[EncoderSpec]) -> int:
    """Say how large encoders are, however their files store them."""
    return bytes_of(shapes_of(*encoders), "fp32")


def precision_on(choice: PrecisionChoice, kind: Literal["cpu", "cuda"], n_bytes: int) -> Precision:
    """Say what ``auto`` means on this machine; any other choice as it is.

    See `default_precision` for the parameters.
    """
    if choice != "auto":
        return choice
    return default_precision(kind, cpu_flags(), n_bytes)


def with_precision(job: Job, execution: Execution, reporter: Reporter | None = None) -> Job:
    """Settle the precision of a job that leaves it open; give any other job as it is.

    Once settled, it is part of what a resume must repeat. ``auto`` is that of the run which is gone
    on with, whatever devices it has now; else what suits the devices. bf16 on a CPU is held against
    fp32 first, see `try_bf16`, unless there is a run that nobody goes on with: whoever opens that
    folder refuses it.

    Raises
    ------
    UsageError, DeviceError
        When the devices make no sense or are not there.
    NotARunError
        When there is a run that cannot be read.
    WorkerError
        When bf16 is to be tried and the encoders cannot be computed with at all.
    """
    if job.precision != "auto":
        return job
    run = RunDirectory(execution.outdir)
    there = run.run_json.is_file() and is_manifest(run.run_json)
    if execution.resume and there:
        return replace(job, precision=read_manifest(run).parameters["precision"])
    kind = parse_devices(execution.devices, os.environ)[0].kind
    precision = precision_on("auto", kind, weight_bytes(job.encoders))
    if (kind, precision) == ("cpu", "bf16") and (execution.force or not there):
        precision = try_bf16(job, execution, reporter or SilentReporter())
    return replace(job, precision=precision)

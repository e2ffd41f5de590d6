"""The precision that ``auto`` stands for."""

from collections.abc import Collection, Sequence
from typing import Final, Literal

from virnucpro.encoders.base import EncoderSpec, Precision
from virnucpro.encoders.memory.memory_needed import bytes_of
from virnucpro.encoders.registry import shapes_of
from virnucpro.machine import cpu_flags
from virnucpro.pipeline.jobs.job import PrecisionChoice

__all__ = [
    "default_precision",
    "precision_on",
    "weight_bytes",
]

_LARGE: Final = 100_000_000
"""Bytes of weights at fp32 from which half precision is worth its rounding error."""


def default_precision(
    kind: Literal["cpu", "cuda"],
    flags: Collection[str],
    n_bytes: int,
    verified: Collection[str] = (),
) -> Precision:
    """Choose a precision by device, model size and what the bundle's card says was verified.

    =========================== ====================================
    encoders smaller than 100 MB fp32: they are fast at any precision
    larger, on a GPU             fp16: as fast as bf16, 8 times closer to fp32
    larger, on a CPU with AMX    bf16 where `verified` lists it, else fp32
    larger, on another CPU       fp32: half precision gains too little
    =========================== ====================================

    Parameters
    ----------
    kind
        Kind of device.
    flags
        CPU features by their Linux names.
    n_bytes
        Bytes of all encoders' weights at fp32; see `weight_bytes`.
    verified
        Precisions that the bundle's card lists under ``verified_precisions``.
    """
    if n_bytes < _LARGE:
        return "fp32"
    if kind == "cuda":
        return "fp16"
    return "bf16" if "amx_bf16" in flags and "bf16" in verified else "fp32"


def weight_bytes(encoders: Sequence[EncoderSpec]) -> int:
    """Return the bytes of encoders' weights at fp32, however their files store them."""
    return bytes_of(shapes_of(*encoders), "fp32")


def precision_on(
    choice: PrecisionChoice,
    kind: Literal["cpu", "cuda"],
    n_bytes: int,
    verified: Collection[str] = (),
) -> Precision:
    """Resolve ``auto`` on this machine; return any other choice unchanged.

    See `default_precision` for the parameters.
    """
    if choice != "auto":
        return choice
    return default_precision(kind, cpu_flags(), n_bytes, verified)

"""Recognition of out-of-memory errors of a GPU or a CPU."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, TypeVar

import torch

__all__ = ["Shortage", "is_out_of_memory", "within_memory"]

Result = TypeVar("Result")

_CUDA_MEMORY_ALLOCATION: Final = 2
"""``cudaErrorMemoryAllocation`` of the CUDA runtime."""

_UNTYPED: Final = (
    "DefaultCPUAllocator: can't allocate memory",
    "DefaultCPUAllocator: not enough memory",
    "CUBLAS_STATUS_ALLOC_FAILED",
    "CUBLAS_STATUS_NOT_INITIALIZED",
    "CUDA driver error: out of memory",
    "std::bad_alloc",
)
"""Texts of a bare RuntimeError of torch. cuBLAS reports a handle that it cannot allocate as not
initialised. Source of the first two: c10/core/impl/alloc_cpu.cpp.
"""

_WANTED: Final = re.compile(r"[Tt]ried to allocate ([0-9.]+ [A-Za-z]+)")


@dataclass(frozen=True, slots=True)
class Shortage:
    """Result of a computation that ran out of memory.

    Attributes
    ----------
    wanted
        Size of the failed allocation with its unit, such as ``"20.00 GiB"``; "" if unknown.
    """

    wanted: str


def is_out_of_memory(error: BaseException) -> bool:
    """Return whether an error means that the device's or the host's memory ran out.

    torch has exception types for a GPU; for its CPU allocator, cuBLAS and C++ only texts.
    """
    if isinstance(error, torch.OutOfMemoryError | MemoryError):
        return True
    if isinstance(error, torch.AcceleratorError):
        return getattr(error, "error_code", None) == _CUDA_MEMORY_ALLOCATION
    return isinstance(error, RuntimeError) and any(text in str(error) for text in _UNTYPED)


def within_memory(work: Callable[[], Result]) -> Result | Shortage:
    """Return the result of `work`, or a `Shortage` after its memory was released.

    Raises
    ------
    Exception
        Any other error of `work`.
    """
    try:
        return work()
    except Exception as error:
        if not is_out_of_memory(error):
            raise
        wanted = _WANTED.search(str(error))
    # Only here: inside the except block, the traceback keeps the frames and their tensors alive.
    torch.cuda.empty_cache()
    return Shortage(wanted[1] if wanted else "")

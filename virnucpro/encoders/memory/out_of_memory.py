"""Telling an error for want of memory, on a GPU or on a CPU, from any other."""

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
    """A piece of work did not fit.

    Attributes
    ----------
    wanted
        The allocation that failed, with its unit, such as ``"20.00 GiB"``; "" where nobody said.
    """

    wanted: str


def is_out_of_memory(error: BaseException) -> bool:
    """Tell whether memory was short, that of the device or of the machine.

    torch has types for a GPU's; for its CPU allocator, cuBLAS and C++ it has words alone.
    """
    if isinstance(error, torch.OutOfMemoryError | MemoryError):
        return True
    if isinstance(error, torch.AcceleratorError):
        return getattr(error, "error_code", None) == _CUDA_MEMORY_ALLOCATION
    return isinstance(error, RuntimeError) and any(words in str(error) for words in _UNTYPED)


def within_memory(work: Callable[[], Result]) -> Result | Shortage:
    """Do `work`, or tell that memory is too short for it; then all that it held is free again.

    Raises
    ------
    Exception
        Whatever else `work` raises.
    """
    try:
        return work()
    except Exception as error:
        if not is_out_of_memory(error):
            raise
        wanted = _WANTED.search(str(error))
    # Not earlier: until here the error's traceback holds the frames, and they hold the tensors.
    torch.cuda.empty_cache()
    return Shortage(wanted[1] if wanted else "")

"""Devices of encoders: types, memory, out-of-memory errors, and the largest batch that fits.

Without encoders that use torch, nothing here imports torch.
"""

import os
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final, TypeVar

import numpy as np

from virnucpro.encoders.base import Encoder, Precision
from virnucpro.encoders.batching import length_class
from virnucpro.errors import DeviceError, UsageError
from virnucpro.machine import available_memory, usable_memory

if TYPE_CHECKING:
    import torch

_DTYPES: Final = {"fp32": "float32", "fp16": "float16", "bf16": "bfloat16"}
_USERS: Final[set[int]] = set()
"""Process that uses torch; a fork inherits that of its parent."""


@contextmanager
def torch_threads(threads: int) -> Iterator[None]:
    """Set the CPU threads of torch during the block; do nothing in a process without torch."""
    torch = sys.modules.get("torch")
    if torch is None:
        yield
        return
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def dtype_of(precision: Precision) -> "torch.dtype":
    """Return the torch dtype of a precision.

    Raises
    ------
    UsageError
        If the precision is not fp32, fp16 or bf16.
    """
    if precision not in _DTYPES:
        raise UsageError(f"unknown precision {precision!r}; choose one of {', '.join(_DTYPES)}")
    import torch

    dtype: torch.dtype = getattr(torch, _DTYPES[precision])
    return dtype


def open_device(name: str) -> "torch.device":
    """Return the torch device of this name after a test allocation.

    Raises
    ------
    DeviceError
        If there is no such device, or torch was built without support for it; if a parent of this
        process has used torch before the fork.
    """
    import torch

    if {*_USERS, os.getpid()} != {os.getpid()}:
        raise DeviceError(
            "this process is a fork of one in which torch has computed, where torch waits for "
            'ever. Start processes with multiprocessing.get_context("spawn"), or compute in the '
            "parent only."
        )
    _USERS.add(os.getpid())
    # cuBLAS may add up parts of an fp16 product in fp16, which overflows at 65,504
    torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction = False
    try:
        device = torch.device(name)
        torch.empty(1, device=device)
    except (RuntimeError, AssertionError) as error:
        reason = str(error).partition("\n")[0]
        raise DeviceError(
            f"device {name!r} cannot be used ({reason}). Use 'cpu', or a device of this machine."
        ) from error
    return device


def device_bytes(device: "torch.device") -> int | None:
    """Return the total memory of a CPU or GPU in bytes; None for other devices."""
    if device.type == "cuda":
        import torch

        return torch.cuda.mem_get_info(device)[1]
    return usable_memory() if device.type == "cpu" else None


def free_bytes(device: "torch.device") -> int | None:
    """Return the free memory of a CPU or GPU in bytes; None for other devices."""
    if device.type == "cuda":
        import torch

        return torch.cuda.mem_get_info(device)[0]
    return available_memory() if device.type == "cpu" else None


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
"""Texts of torch errors without a type of their own that mean out of memory. cuBLAS reports "not
initialised" if it cannot allocate its handle. Source of the first two: c10/core/impl/alloc_cpu.cpp.
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

    torch has an exception type for GPU memory. Errors of torch's CPU allocator, of cuBLAS and of
    C++ are recognised by their texts.
    """
    torch = sys.modules.get("torch")
    if isinstance(error, MemoryError) or (torch and isinstance(error, torch.OutOfMemoryError)):
        return True
    if is_device_failure(error):
        return getattr(error, "error_code", None) == _CUDA_MEMORY_ALLOCATION
    return isinstance(error, RuntimeError) and any(text in str(error) for text in _UNTYPED)


def is_device_failure(error: BaseException) -> bool:
    """Return whether an error is torch's error of a GPU, which is then unusable in this process."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(error, torch.AcceleratorError)


def within_memory(work: Callable[[], Result]) -> Result | Shortage:
    """Return the result of `work()`; if memory runs out, free cached memory and return `Shortage`.

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
    # After the except block, because within it the traceback keeps the frames and tensors alive.
    if torch := sys.modules.get("torch"):
        torch.cuda.empty_cache()
    return Shortage(wanted[1] if wanted else "")


_SYNTHETIC = {"nucleotide": b"ACGTTGCA", "protein": b"LAGVSERTIDPKQNFYMHWC"}


def fitting_budget(fits: Callable[[int], bool], first: int, least: int, most: int) -> int:
    """Return the largest token budget that fits: double `first`, or halve it if it does not fit.

    `fits` is a function that tests whether a budget fits into memory.

    Returns
    -------
    int
        The largest tested budget that fits, at most `most`. If no budget fits, the first tested
        budget at or below `least`.
    """
    tokens = first
    if fits(tokens):
        while 2 * tokens <= most and fits(2 * tokens):
            tokens *= 2
        return tokens
    while tokens > least:
        tokens //= 2
        if fits(tokens):
            break
    return tokens


def probe(encoder: Encoder, longest: int, first: int, most: int) -> int:
    """Return the token budget that fits into memory; test it with synthetic sequences.

    Each sequence has `longest` tokens, rounded up to a power of two. See `fitting_budget` for
    `first` and `most`.
    """
    length = length_class(longest)
    return fitting_budget(
        lambda tokens: try_batch(encoder, length, tokens) is None, first, length, most
    )


def try_batch(encoder: Encoder, length: int, tokens: int) -> Shortage | None:
    """Encode a test batch of `tokens` tokens, with synthetic sequences of `length` tokens.

    The sequences are shorter if the encoder has a lower limit of tokens.

    Returns
    -------
    A `Shortage` if memory runs out; None if the batch fits.
    """
    (ids,) = encoder.tokenise([_SYNTHETIC[encoder.view]])
    length = min(length, encoder.plan.most_tokens or length)
    batch = [np.resize(ids, length)] * max(1, tokens // length)
    tried = within_memory(partial(encoder.vectors, batch))
    return tried if isinstance(tried, Shortage) else None

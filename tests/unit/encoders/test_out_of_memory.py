import sys

import pytest
import torch
from programs import run_captured

from virnucpro.encoders.device import Shortage, is_out_of_memory, open_device, within_memory


def raising(error):
    def work():
        raise error

    return work


@pytest.mark.parametrize(
    ("error", "wanted"),
    [
        (
            torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 GiB. GPU 0"),
            "20.00 GiB",
        ),
        (MemoryError(), ""),
        (RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate`"), ""),
        (
            RuntimeError("CUDA error: CUBLAS_STATUS_NOT_INITIALIZED when calling `cublasCreate`"),
            "",
        ),
        (RuntimeError("CUDA driver error: out of memory"), ""),
        (RuntimeError("std::bad_alloc"), ""),
    ],
)
def test_a_shortage_has_the_size_of_the_allocation(error, wanted):
    assert within_memory(raising(error)) == Shortage(wanted)


@pytest.mark.parametrize(
    "error",
    [
        RuntimeError("mat1 and mat2 shapes cannot be multiplied"),
        RuntimeError("Storage size calculation overflowed"),
        ValueError("DefaultCPUAllocator: can't allocate memory"),
        torch.AcceleratorError("CUDA error: device-side assert triggered"),
    ],
)
def test_other_errors_are_raised(error):
    assert not is_out_of_memory(error)
    with pytest.raises(type(error)) as caught:
        within_memory(raising(error))
    assert caught.value is error


def test_errors_of_the_allocators_of_torch_are_recognised_as_out_of_memory():
    error = torch.AcceleratorError("CUDA error: out of memory")
    error.error_code = 2
    assert is_out_of_memory(error)
    shortage = within_memory(lambda: torch.empty(1 << 50))
    assert shortage == Shortage(f"{4 << 50} bytes")


def test_opening_a_device_disables_fp16_sums_in_fp16():
    matmul = torch.backends.cuda.matmul
    matmul.allow_fp16_reduced_precision_reduction = True
    assert open_device("cpu") == torch.device("cpu")
    assert not matmul.allow_fp16_reduced_precision_reduction


LIMIT = """
import re, resource, numpy as np, torch
from pathlib import Path
from virnucpro.bundles.bundle import open_bundle
from virnucpro.encoders.device import within_memory
from virnucpro.encoders.registry import load_encoder

torch.set_num_threads(1)
size = int(re.search(r"VmSize:\\s+(\\d+)", Path("/proc/self/status").read_text())[1]) * 1024
resource.setrlimit(resource.RLIMIT_AS, (size + 300_000_000,) * 2)
"""
"""Leaves a process 300 MB of address space beyond what torch has taken."""

SHORT = """
def work():
    held = torch.ones(50_000_000)
    return held, torch.ones(50_000_000)

for _ in range(3):
    print(within_memory(work))
print(len(within_memory(lambda: torch.ones(50_000_000))))
"""

LONG = """
for spec in open_bundle("mini-deep").encoders:
    encoder = load_encoder(spec)
    batch = encoder.collate([np.arange(4_000) % 20 + 5, np.arange(3_000) % 20 + 5])
    vectors = encoder.encode(batch)
    print(spec.view, len(vectors))
"""


@pytest.fixture(scope="module")
def within_300_mb():
    """Return the output of both programs, run in one process because torch starts slowly."""
    done = run_captured(sys.executable, "-c", LIMIT + SHORT + LONG)
    return done.stdout.splitlines(), done.stderr


@pytest.mark.slow
def test_memory_is_released_before_the_next_attempt(within_300_mb):
    printed, errors = within_300_mb
    shortage = "Shortage(wanted='200000000 bytes')"
    assert printed[:4] == [shortage, shortage, shortage, "50000000"], errors


@pytest.mark.slow
def test_memory_grows_linearly_with_the_length_of_a_sequence(within_300_mb):
    printed, errors = within_300_mb
    assert printed[4:] == ["nucleotide 2", "protein 2"], errors

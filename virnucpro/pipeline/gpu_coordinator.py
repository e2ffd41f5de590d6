"""Import path kept for programs: the coordinator is in `virnucpro.runtime.gpu_coordinator`."""

from virnucpro.runtime.gpu_coordinator import GPUProcessCoordinator

__all__ = ["GPUProcessCoordinator"]

"""Second import path of `virnucpro.runtime.gpu_coordinator`, kept for existing programs."""

from virnucpro.runtime.gpu_coordinator import GPUProcessCoordinator

__all__ = ["GPUProcessCoordinator"]

"""Alias of `virnucpro.runtime.gpu_coordinator` for programs that import this older name."""

from virnucpro.runtime.gpu_coordinator import GPUProcessCoordinator

__all__ = ["GPUProcessCoordinator"]

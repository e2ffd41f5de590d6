"""Older import path of `GPUProcessCoordinator`."""

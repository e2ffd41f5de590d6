"""Launcher: process many files with persistent workers, one per device."""

from virnucpro.launch.allocator import ResourceAllocator
from virnucpro.launch.balancer import LoadBalancer
from virnucpro.launch.detector import GPUDetector
from virnucpro.launch.orchestrator import (
    LauncherOrchestrator,
    LaunchOptions,
    run_multi_gpu,
)
from virnucpro.launch.records import distribute_to_gpus, process_records
from virnucpro.launch.spawner import ProcessSpawner
from virnucpro.launch.table import LaunchReport
from virnucpro.launch.worker_spec import FileWorker

__all__ = [
    "FileWorker",
    "GPUDetector",
    "LaunchOptions",
    "LaunchReport",
    "LauncherOrchestrator",
    "LoadBalancer",
    "ProcessSpawner",
    "ResourceAllocator",
    "distribute_to_gpus",
    "process_records",
    "run_multi_gpu",
]

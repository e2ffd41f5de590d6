"""Launcher: process many files with persistent workers, one per device.

A worker process imports this file before its module: the names are imported at their first use.
"""

from virnucpro.lazy import imported_at_first_use

TYPE_CHECKING = False
if TYPE_CHECKING:
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

_MODULES = {
    "FileWorker": "worker_spec",
    "GPUDetector": "detector",
    "LaunchOptions": "orchestrator",
    "LaunchReport": "table",
    "LauncherOrchestrator": "orchestrator",
    "LoadBalancer": "balancer",
    "ProcessSpawner": "spawner",
    "ResourceAllocator": "allocator",
    "distribute_to_gpus": "records",
    "process_records": "records",
    "run_multi_gpu": "orchestrator",
}

if not TYPE_CHECKING:  # type checkers would accept every name
    __getattr__ = imported_at_first_use(__name__, _MODULES)

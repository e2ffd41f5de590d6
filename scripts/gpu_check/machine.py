"""Facts about the machine: device, versions, optional packages."""

import json
import os
import platform
import sys
import time
from importlib.metadata import PackageNotFoundError, version

import torch
from gpu_check.results import Value

__all__ = ["machine_facts"]

_PACKAGES = ("virnucpro", "numpy", "h5py", "safetensors", "tokenizers")
_PEERS = ("fair-esm", "transformers")


def machine_facts() -> dict[str, Value]:
    """Return name and value of each fact that the figures depend on."""
    facts: dict[str, Value] = {"date": time.strftime("%Y-%m-%d"), "device": "CPU"}
    if torch.cuda.is_available():
        properties = torch.cuda.get_device_properties(0)
        facts |= {
            "device": properties.name,
            "memory GB": round(properties.total_memory / 1e9, 1),
            "compute capability": f"{properties.major}.{properties.minor}",
            "CUDA": torch.version.cuda,
        }
    facts |= {"CPUs": len(os.sched_getaffinity(0)), "Python": platform.python_version()}
    facts["torch"] = torch.__version__
    return facts | {name: _version(name) for name in (*_PACKAGES, *_PEERS)}


def _version(package: str) -> str:
    if package == "virnucpro":
        from virnucpro import __version__  # noqa: PLC0415 - a checkout need not be installed

        return __version__
    try:
        return version(package)
    except PackageNotFoundError:
        return "missing"


if __name__ == "__main__":
    json.dump(machine_facts(), sys.stdout)

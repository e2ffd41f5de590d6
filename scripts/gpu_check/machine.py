"""Facts about the machine: device, versions, optional packages."""

import json
import os
import sys
import time
from importlib.metadata import PackageNotFoundError, version

import torch
from gpu_check.results import Value

from virnucpro.extras import versions_of

_PACKAGES = ("torch", "numpy", "h5py", "safetensors", "tokenizers")
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
    facts["CPUs"] = len(os.sched_getaffinity(0))
    return facts | versions_of(*_PACKAGES) | {peer: _version(peer) for peer in _PEERS}


def _version(peer: str) -> str:
    try:
        return version(peer)
    except PackageNotFoundError:
        return "not installed"


if __name__ == "__main__":
    json.dump(machine_facts(), sys.stdout)

"""What the machine's CPU can do."""

from pathlib import Path
from typing import Final

__all__ = ["cpu_flags"]

_CPUINFO: Final = Path("/proc/cpuinfo")


def cpu_flags() -> frozenset[str]:
    """Say what the first CPU can do, in Linux's names; nothing where Linux does not say so."""
    return _flags(_CPUINFO.read_text())


def _flags(cpuinfo: str) -> frozenset[str]:
    for line in cpuinfo.splitlines():
        name, _, value = line.partition(":")
        if name.strip() == "flags":
            return frozenset(value.split())
    return frozenset()

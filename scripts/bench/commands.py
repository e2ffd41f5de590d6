"""Costs of a command."""

import os
import subprocess
import time
from collections.abc import Sequence
from resource import RUSAGE_CHILDREN, getrusage
from typing import NamedTuple


class Spent(NamedTuple):
    """Wall and CPU seconds of a command, and its standard output."""

    wall: float
    cpu: float
    output: bytes


def run(command: Sequence[object], **variables: str) -> Spent:
    """Run a command with further environment variables."""
    before, started = cpu_seconds(), time.perf_counter()
    words, environment = [*map(str, command)], os.environ | variables
    done = subprocess.run(words, check=True, stdout=subprocess.PIPE, env=environment)
    return Spent(time.perf_counter() - started, cpu_seconds() - before, done.stdout)


def cpu_seconds() -> float:
    """Return the CPU seconds of all ended processes that this one started."""
    spent = getrusage(RUSAGE_CHILDREN)
    return spent.ru_utime + spent.ru_stime

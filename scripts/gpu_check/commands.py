"""Python modules in processes of their own; none outlives its part."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from gpu_check.sizes import Setting

Command = Sequence[str | Path]


class CommandError(Exception):
    """A command ended with an unexpected exit code."""


@contextmanager
def running(
    setting: Setting, command: Command, environment: Mapping[str, str] | None = None
) -> Iterator[subprocess.Popen[bytes]]:
    """Start a Python module in its own session, its output in the log; kill it at the end."""
    command = [sys.executable, "-m", *map(str, command)]
    with setting.log.open("ab") as log:
        log.write(f"\n$ {' '.join(command)}\n".encode())
        log.flush()
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
            env={**os.environ, **(environment or {})},
        )
    try:
        yield process
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def virnucpro(
    setting: Setting,
    command: Command,
    environment: Mapping[str, str] | None = None,
    code: int = 0,
) -> float:
    """Run a virnucpro command; return its seconds.

    Raises
    ------
    CommandError
        When its exit code is not `code`.
    """
    started = time.monotonic()
    with running(setting, ["virnucpro", *command], environment) as process:
        found = process.wait()
    if found != code:
        raise CommandError(
            f"virnucpro {command[0]} ended with exit code {found}, not {code}: see {setting.log}"
        )
    return time.monotonic() - started

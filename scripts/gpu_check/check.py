"""Check every GPU path of virnucpro: see scripts/gpu_check.sh."""

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from gpu_check.parts import PARTS
from gpu_check.results import LOG, PartResult, Results, Status, Value

SECONDS = 530.0
"""For the whole check."""

_STOP_SECONDS = 5.0
"""Time for a part to end its own processes after SIGTERM."""

_LEAST_SECONDS = 10.0
"""A part is not started when less time is left."""


class Check:
    """Runs parts one after the other, each in a process of its own.

    Parameters
    ----------
    out
        Folder of the results.
    work
        Folder for weights and runs.
    machine
        As `machine_facts` returns it.
    sizes
        ``full`` or ``small``.
    seconds
        For all parts together. With more than usual each part may take longer.
    """

    def __init__(
        self, out: Path, work: Path, machine: dict[str, Value], sizes: str, seconds: float
    ) -> None:
        device = "cpu" if machine["device"] == "CPU" else "cuda"
        self._out, self._arguments = out, [device, sizes, str(work), str(out)]
        self._until = time.monotonic() + seconds
        self._patience = max(1.0, seconds / SECONDS)
        machine = machine | {"sizes": sizes}
        known = Results.load(out).machine
        if any(known.get(name) != machine[name] for name in ("device", "sizes")):
            Results(machine).save(out)

    def run(self, names: Sequence[str]) -> int:
        """Run the parts that have not passed yet; return the exit code for all of `names`."""
        for name in names:
            if self._passed(name):
                print(f"{name}: passed in an earlier run", flush=True)
            else:
                self._run(name)
        return 0 if all(map(self._passed, names)) else 1

    def _passed(self, name: str) -> bool:
        part = Results.load(self._out).parts.get(name)
        return part is not None and part.status == "passed"

    def _run(self, name: str) -> None:
        left = self._until - time.monotonic()
        seconds = min(PARTS[name].seconds * self._patience, left)
        if left < _LEAST_SECONDS:
            end_part(self._out, name, 0.0, "not run", "no time is left: repeat the command")
            return
        print(f"{name}: up to {seconds:.0f} s", flush=True)
        command = [sys.executable, "-m", "gpu_check.parts", name, *self._arguments]
        run_part(command, name, self._out, seconds)


def run_part(command: Sequence[str], name: str, out: Path, seconds: float) -> None:
    """Run a part's process, which saves its figures and problems in `out`; save its status.

    Parameters
    ----------
    seconds
        Timeout: SIGTERM after that, SIGKILL some seconds later.
    """
    started = time.monotonic()
    results = Results.load(out)
    results.parts.pop(name, None)  # of an earlier run
    results.save(out)
    with (out / LOG).open("ab") as errors:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stderr=errors, start_new_session=True
        )
    try:
        code = process.wait(seconds)
    except subprocess.TimeoutExpired:
        code = None
    finally:
        _stop(process)
    passed = time.monotonic() - started
    if code is None:
        end_part(out, name, passed, "timeout", f"not finished within {seconds:.0f} s")
    elif code != 0:
        end_part(out, name, passed, "failed", f"ended with exit code {code}: see {out / LOG}")
    else:
        end_part(out, name, passed, "passed")


def end_part(out: Path, name: str, seconds: float, status: Status, problem: str = "") -> None:
    """Save and print the status of an ended part; a part with problems has failed."""
    results = Results.load(out)
    part = results.parts.setdefault(name, PartResult(status))
    part.problems += [problem] if problem else []
    part.status = "failed" if status == "passed" and part.problems else status
    part.seconds = round(seconds, 3)
    results.parts = {name: results.parts[name] for name in PARTS if name in results.parts}
    results.save(out)
    print("\n  ".join([f"{name}: {part.status}, {seconds:.1f} s", *part.problems]), flush=True)


def _stop(process: subprocess.Popen[bytes]) -> None:
    """Terminate a process; kill its group if it does not end."""
    if process.poll() is None:
        process.terminate()
        try:
            process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def _machine() -> dict[str, Any]:
    """Return the facts of a separate process: this one must hold no device memory."""
    command = [sys.executable, "-m", "gpu_check.machine"]
    done = subprocess.run(command, stdout=subprocess.PIPE, check=True)
    facts: dict[str, Any] = json.loads(done.stdout)
    return facts


def _options(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="gpu_check.sh", description="Check every GPU path of virnucpro on this machine."
    )
    parser.add_argument("out", type=Path, metavar="OUT", help="folder of the results")
    parser.add_argument(
        "parts", nargs="*", metavar="PART", help=f"{', '.join(PARTS)}; default: all"
    )
    parser.add_argument("--small", action="store_true", help="small sizes on a GPU, too")
    parser.add_argument(
        "--seconds", type=float, default=SECONDS, help="for all parts; default: %(default)g"
    )
    parser.add_argument("--work", type=Path, help="folder for weights and runs, which are kept")
    options = parser.parse_args(argv)
    if unknown := [name for name in options.parts if name not in PARTS]:
        parser.error(f"unknown part {unknown[0]}; choose from {', '.join(PARTS)}")
    return options


def main(argv: Sequence[str] | None = None) -> int:
    """Run the check; return the exit code."""
    options = _options(argv)
    started = time.monotonic()
    options.out.mkdir(parents=True, exist_ok=True)
    machine = _machine()
    sizes = "small" if options.small or machine["device"] == "CPU" else "full"
    print(f"{machine['device']}, torch {machine['torch']}, {sizes} sizes", flush=True)
    work = options.work or Path(tempfile.mkdtemp(prefix="gpu-check-"))
    work.mkdir(parents=True, exist_ok=True)
    try:
        left = options.seconds - (time.monotonic() - started)
        check = Check(options.out, work, machine, sizes, left)
        code = check.run(options.parts or list(PARTS))
    finally:
        if options.work is None:
            shutil.rmtree(work, ignore_errors=True)
    print(f"{options.out / 'gpu_check.md'}, {time.monotonic() - started:.0f} s", flush=True)
    return code


if __name__ == "__main__":
    sys.exit(main())

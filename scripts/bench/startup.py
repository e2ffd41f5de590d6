"""Measure the time of commands that compute nothing, beside Python's start and numpy's import.

    python scripts/bench/startup.py [--repeats 20]

The commands alternate; the minimum wall time of each is printed. Aim: `virnucpro --help` < 0.25 s.
"""

import argparse
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

EXAMPLE = Path(__file__).parents[2] / "tests" / "data" / "example.fa"
PROGRAM = ["-m", "virnucpro"]


def main() -> None:
    """Run all commands alternately; print the minimum time of each."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=20)
    repeats = parser.parse_args().repeats
    with tempfile.TemporaryDirectory() as name:
        run = Path(name) / "run"
        call([*PROGRAM, "predict", str(EXAMPLE), "-o", str(run), "--devices", "cpu:1", "-q"])
        commands = commands_on(run)
        least = dict.fromkeys(commands, float("inf"))
        for _ in range(repeats):
            for what, command in commands.items():
                least[what] = min(least[what], call(command))
    for what, seconds in least.items():
        print(f"{seconds:7.3f} s  {what}")


def commands_on(run: Path) -> dict[str, list[str]]:
    """List the commands."""
    return {
        "python -c pass": ["-c", "pass"],
        "python -c 'import numpy'": ["-c", "import numpy"],
        "virnucpro --version": [*PROGRAM, "--version"],
        "virnucpro --help": [*PROGRAM, "--help"],
        "virnucpro predict --help": [*PROGRAM, "predict", "--help"],
        "virnucpro bundle list": [*PROGRAM, "bundle", "list"],
        "virnucpro bundle show mini": [*PROGRAM, "bundle", "show", "mini"],
        "virnucpro status RUN": [*PROGRAM, "status", str(run)],
        "virnucpro verify RUN": [*PROGRAM, "verify", str(run)],
    }


def call(command: Sequence[str]) -> float:
    """Run Python; return its wall seconds."""
    started = time.perf_counter()
    subprocess.run([sys.executable, *command], check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - started


if __name__ == "__main__":
    main()

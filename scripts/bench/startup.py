"""Measure the time of commands that compute nothing, beside Python's start and numpy's import.

    python scripts/bench/startup.py [--repeats 20]

The commands alternate; the minimum wall time of each is printed. Aim: `virnucpro --help` < 0.25 s.
"""

import argparse
import sys
import tempfile
from pathlib import Path

from commands import run

EXAMPLE = Path(__file__).parents[2] / "tests" / "data" / "example.fa"
PROGRAM = ["-m", "virnucpro"]


def main() -> None:
    """Run all commands alternately; print the minimum time of each."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=20)
    repeats = parser.parse_args().repeats
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / "run"
        predict = [*PROGRAM, "predict", EXAMPLE, "-o", folder, "--devices", "cpu:1", "-q"]
        run([sys.executable, *predict])
        commands = commands_on(folder)
        least = dict.fromkeys(commands, float("inf"))
        for _ in range(repeats):
            for what, command in commands.items():
                least[what] = min(least[what], run([sys.executable, *command]).wall)
    for what, seconds in least.items():
        print(f"{seconds:7.3f} s  {what}")


def commands_on(folder: Path) -> dict[str, list[str]]:
    """List the commands."""
    return {
        "python -c pass": ["-c", "pass"],
        "python -c 'import numpy'": ["-c", "import numpy"],
        "virnucpro --version": [*PROGRAM, "--version"],
        "virnucpro --help": [*PROGRAM, "--help"],
        "virnucpro predict --help": [*PROGRAM, "predict", "--help"],
        "virnucpro bundle list": [*PROGRAM, "bundle", "list"],
        "virnucpro bundle show mini": [*PROGRAM, "bundle", "show", "mini"],
        "virnucpro status RUN": [*PROGRAM, "status", str(folder)],
        "virnucpro verify RUN": [*PROGRAM, "verify", str(folder)],
    }


if __name__ == "__main__":
    main()

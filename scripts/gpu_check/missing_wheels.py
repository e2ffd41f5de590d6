"""Print the wheels of a folder whose packages this interpreter does not have, a path a line."""

import sys
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path


def is_installed(wheel: Path) -> bool:
    """Return whether any version of the wheel's package is installed."""
    name = wheel.name.partition("-")[0]
    try:
        distribution(name)
    except PackageNotFoundError:
        return False
    return True


if __name__ == "__main__":
    for path in sorted(Path(sys.argv[1]).glob("*.whl")):
        if not is_installed(path):
            print(path)

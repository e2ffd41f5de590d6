"""The floors, the light imports and the public names hold."""

import importlib
import pkgutil
import subprocess
import sys
from pathlib import Path

import pytest

import virnucpro

ROOT = Path(__file__).parents[2]
MODULES = sorted(
    name
    for _, name, _ in pkgutil.walk_packages(virnucpro.__path__, "virnucpro.")
    if not name.endswith("__main__")
)


def test_the_floors_hold():
    done = subprocess.run(
        [Path(sys.executable).with_name("lint-imports"), "--no-cache"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize(
    "module",
    [
        "virnucpro",
        "virnucpro.runtime",
        "virnucpro.pipeline",
        "virnucpro.pipeline.gpu_coordinator",
        "virnucpro.pipeline.gpu_worker",
        "virnucpro.pipeline.predict",
        "virnucpro.cli.main",
    ],
)
def test_what_runs_before_the_device_mask_does_not_import_torch(module):
    code = f"import sys, {module}; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_the_command_line_parses_without_numpy():
    """A rank imports the main script before its threads are set; numpy would not see them."""
    code = "import sys, virnucpro.cli.main; sys.exit('numpy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.parametrize("name", MODULES)
def test_public_names_exist(name):
    module = importlib.import_module(name)
    if name in {package for package in MODULES if hasattr(module, "__path__")}:
        return
    assert module.__all__, f"{name} names nothing public"
    assert [public for public in module.__all__ if not hasattr(module, public)] == []
    assert list(module.__all__) == sorted(module.__all__, key=lambda one: (not one.isupper(), one))

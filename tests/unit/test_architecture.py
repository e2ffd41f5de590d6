"""The floors, the light imports and the public names hold."""

import ast
import importlib
import pkgutil
import re
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


def test_processes_are_started_and_signalled_in_the_runtime_alone():
    """What import-linter cannot see: calls into os, and the standard library's own pool."""
    package = Path(virnucpro.__file__).parent
    handling = re.compile(
        r"os\.(fork|forkpty|kill|killpg|posix_spawn|(spawn|exec)[a-z]+|system|popen)"
    )
    found = [
        f"{path.relative_to(package)}: {ast.unparse(node)}"
        for path in package.rglob("*.py")
        if path.parent.name != "runtime"
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Attribute | ast.Name)
        and (handling.fullmatch(ast.unparse(node)) or "ProcessPoolExecutor" in ast.unparse(node))
    ]
    assert found == []


@pytest.mark.parametrize(
    "module",
    [
        "virnucpro",
        "virnucpro.runtime",
        "virnucpro.pipeline",
        "virnucpro.pipeline.gpu_coordinator",
        "virnucpro.pipeline.gpu_worker",
        "virnucpro.pipeline.predict",
        "virnucpro.predict",
        "virnucpro.launch",
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

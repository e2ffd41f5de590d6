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
        "virnucpro.runtime.gpu_coordinator",
        "virnucpro.pipeline.worker.rank_main",
        "virnucpro.pipeline.predict",
        "virnucpro.predict_worker",
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


def test_public_names_exist():
    wrong = []
    for name in MODULES:
        module = importlib.import_module(name)
        public = getattr(module, "__all__", None)
        if public is None:
            wrong += [] if hasattr(module, "__path__") else [f"{name} names nothing public"]
            continue
        wrong += [f"{name}.{one} does not exist" for one in public if not hasattr(module, one)]
        if list(public) != sorted(public, key=lambda one: (not one.isupper(), one)):
            wrong.append(f"{name}.__all__ is not sorted")
    assert wrong == []

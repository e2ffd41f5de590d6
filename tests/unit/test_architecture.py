"""Import contracts, light imports, sizes and public names of the package."""

import ast
import importlib
import pkgutil
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

import virnucpro

ROOT = Path(__file__).parents[2]
PACKAGE = Path(virnucpro.__file__).parent
BEFORE_THE_DEVICE_MASK = (
    "virnucpro",
    "virnucpro.runtime",
    "virnucpro.pipeline",
    "virnucpro.runtime.gpu_coordinator",
    "virnucpro.pipeline.worker.rank_main",
    "virnucpro.pipeline.predict",
    "virnucpro.predict_worker",
    "virnucpro.launch",
    "virnucpro.cli.main",
)
MODULES = sorted(
    name
    for _, name, _ in pkgutil.walk_packages(virnucpro.__path__, "virnucpro.")
    if not name.endswith("__main__")
)


def test_the_import_contracts_hold():
    done = subprocess.run(
        [Path(sys.executable).with_name("lint-imports"), "--no-cache"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout


def test_only_the_runtime_starts_and_signals_processes():
    """Covers calls that import-linter cannot see: those of `os`, and ProcessPoolExecutor."""
    handling = re.compile(
        r"os\.(fork|forkpty|kill|killpg|posix_spawn|(spawn|exec)[a-z]+|system|popen)"
    )
    found = [
        f"{path.relative_to(PACKAGE)}: {ast.unparse(node)}"
        for path in PACKAGE.rglob("*.py")
        if path.parent.name != "runtime"
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Attribute | ast.Name)
        and (handling.fullmatch(ast.unparse(node)) or "ProcessPoolExecutor" in ast.unparse(node))
    ]
    assert found == []


@pytest.mark.parametrize(
    ("modules", "unwanted"),
    [
        (BEFORE_THE_DEVICE_MASK, "torch"),
        # A rank imports the main script before it sets the number of numpy's threads.
        (["virnucpro.cli.main"], "numpy"),
    ],
)
def test_early_imports_stay_light(modules, unwanted):
    code = f"import sys, {', '.join(modules)}; sys.exit({unwanted!r} in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_modules_and_folders_are_small():
    modules = {str(path.relative_to(PACKAGE)): path for path in PACKAGE.rglob("*.py")}
    long = {name for name, path in modules.items() if len(path.read_text().splitlines()) > 400}
    assert long == set()
    folders = Counter(path.parent for path in modules.values())
    assert [folder for folder, files in folders.items() if files > 20] == []


def test_public_names_exist():
    wrong = []
    for name in MODULES:
        module = importlib.import_module(name)
        public = getattr(module, "__all__", None)
        if public is None:
            wrong += [] if hasattr(module, "__path__") else [f"{name} has no __all__"]
            continue
        wrong += [f"{name}.{one} does not exist" for one in public if not hasattr(module, one)]
        if list(public) != sorted(public, key=lambda one: (not one.isupper(), one)):
            wrong.append(f"{name}.__all__ is not sorted")
    assert wrong == []

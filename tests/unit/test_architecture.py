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
from programs import run_captured

import virnucpro

ROOT = Path(__file__).parents[2]
PACKAGE = Path(virnucpro.__file__).parent
BEFORE_THE_DEVICE_MASK = (
    "virnucpro",
    "virnucpro.runtime",
    "virnucpro.compute",
    "virnucpro.run",
    "virnucpro.pipeline.gpu_coordinator",
    "virnucpro.runtime.gpu_coordinator",
    "virnucpro.compute.rank_main",
    "virnucpro.compute.predict",
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
    done = run_captured(Path(sys.executable).with_name("lint-imports"), "--no-cache", cwd=ROOT)
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
        and re.search(rf"{handling.pattern}|ProcessPoolExecutor", text := path.read_text())
        for node in ast.walk(ast.parse(text))
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
        # A worker needs nothing of its parent.
        (["virnucpro.dispatch.worker_main", "virnucpro.launch"], "virnucpro.dispatch.dispatcher"),
    ],
)
def test_early_imports_stay_light(modules, unwanted):
    code = f"import sys, {', '.join(modules)}; sys.exit({unwanted!r} in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_modules_and_folders_are_small():
    modules = {str(path.relative_to(PACKAGE)): path for path in PACKAGE.rglob("*.py")}
    long = {name for name, path in modules.items() if len(path.read_text().splitlines()) > 600}
    assert long == set()
    folders = Counter(path.parent for path in modules.values())
    assert [folder for folder, files in folders.items() if files > 20] == []


def test_only_public_faces_list_their_names():
    """Elsewhere a leading underscore says private."""
    wrong, faces = [], []
    for name in MODULES:
        public = getattr(importlib.import_module(name), "__all__", None)
        if public is None:
            continue
        faces.append(name)
        wrong += [
            f"{name}.{each} does not exist"
            for each in public
            if not hasattr(sys.modules[name], each)
        ]
        if list(public) != sorted(public, key=lambda each: (not each.isupper(), each)):
            wrong.append(f"{name}.__all__ is not sorted")
    assert wrong == []
    assert faces == [
        "virnucpro.dispatch",
        "virnucpro.dispatch.ui",
        "virnucpro.encoders.plugin",
        "virnucpro.launch",
        "virnucpro.pipeline.gpu_coordinator",
    ]

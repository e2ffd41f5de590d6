"""Each command imports only the modules that it needs: importing torch takes a second."""

import re
import shutil
import subprocess
import sys
from dataclasses import replace

import pytest

from virnucpro.bundles.bundle import open_bundle, write_manifest
from virnucpro.bundles.manifest import read_manifest
from virnucpro.bundles.published import recipe_of
from virnucpro.cli.exit_codes import ExitCode
from virnucpro.pipeline.execution import Execution
from virnucpro.pipeline.jobs.job import SilentReporter
from virnucpro.pipeline.predict import predict_job
from virnucpro.pipeline.run.session import open_session

EXAMPLE = "tests/data/example.fa"
ENCODERS = {"torch", "esm", "transformers", "tokenizers"}
NOTHING = ENCODERS | {"h5py", "numpy", "safetensors", "dnaio", "xopen", "rich", "pynvml"}
COMMANDS = ["predict", "embed", "parity", "bench", "frames", "status", "verify", "aggregate"]
COMMANDS += [
    *("plan", "work", "merge", "rescue", "submit", "cite", "completion"),
    "rescore",
    "report",
    "plot",
    "train",
    "evaluate",
    "launch",
    "bundle",
    "bundle fetch",
    "bundle import",
    "bundle verify",
]

CASES = {
    "version": (["--version"], ExitCode.OK, NOTHING),
    "help": (["--help"], ExitCode.OK, NOTHING),
    "wrong usage": (["predict", "--nonsense"], ExitCode.USAGE, NOTHING),
    "status": (["status", "{run}"], ExitCode.PARTIAL, ENCODERS | {"h5py", "safetensors"}),
    "frames": (["frames", EXAMPLE, "-o", "{new}"], ExitCode.OK, ENCODERS | {"h5py"}),
    "bundle list": (["bundle", "list"], ExitCode.OK, ENCODERS | {"h5py"}),
    "bundle show": (["bundle", "show", "mini"], ExitCode.OK, ENCODERS | {"h5py"}),
    "fetch of an unknown name": (["bundle", "fetch", "none"], ExitCode.USAGE, ENCODERS | {"h5py"}),
    "import of no file": (["bundle", "import", "none"], ExitCode.FAILED, ENCODERS | {"h5py"}),
    "bundle verify": (["bundle", "verify", "mini"], ExitCode.OK, ENCODERS | {"h5py"}),
    "pack into a folder": (
        ["bundle", "pack", "mini", "-o", "{run}"],
        ExitCode.USAGE,
        ENCODERS | {"h5py"},
    ),
    "bench of an unknown size": (["bench", "-m", "none"], ExitCode.USAGE, ENCODERS),
    "evaluate without labels": (["evaluate", "-o", "{new}"], ExitCode.USAGE, ENCODERS | {"h5py"}),
    "parity of an unknown bundle": (["parity", "-b", "none"], ExitCode.USAGE, ENCODERS),
    "rescore": (["rescore", "{run}"], ExitCode.PARTIAL, ENCODERS),
    "verify": (["verify", "{run}"], ExitCode.PARTIAL, ENCODERS),
    "aggregate": (["aggregate", "{run}"], ExitCode.PARTIAL, ENCODERS),
    "no such input": (["predict", "{new}.fa", "-o", "{new}"], ExitCode.FAILED, ENCODERS),
    "a run that is there": (["predict", EXAMPLE, "-o", "{run}"], ExitCode.FAILED, ENCODERS),
}
"""Command line, exit code, modules that it must not import."""


@pytest.fixture(scope="module")
def run_folder(tmp_path_factory):
    """A run stopped before its first batch."""
    folder = tmp_path_factory.mktemp("startup") / "run"
    with open_session(predict_job([EXAMPLE]), Execution(folder), SilentReporter()):
        pass
    return folder


def imported(*command: str) -> tuple[int, set[str]]:
    """Run Python and return the top-level names of the imported modules."""
    done = subprocess.run(
        [sys.executable, "-X", "importtime", *command],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    names = re.findall(r"^import time:.*\| +([\w.]+)$", done.stderr, re.MULTILINE)
    assert len(names) > 50
    return done.returncode, {name.partition(".")[0] for name in names}


@pytest.mark.parametrize("case", CASES)
def test_a_command_imports_only_what_it_needs(case, run_folder, tmp_path):
    command, wanted, forbidden = CASES[case]
    names = {"run": run_folder, "new": tmp_path / "new"}
    code, modules = imported("-m", "virnucpro", *(word.format(**names) for word in command))
    assert code == wanted
    assert "virnucpro" in modules
    assert modules & forbidden == set()


def test_fetching_an_installed_bundle_imports_no_torch(tmp_path, monkeypatch):
    monkeypatch.setenv("VIRNUCPRO_DATA", str(tmp_path))
    folder = tmp_path / "bundles" / "esm2_t6_8M_UR50D"
    shutil.copytree(open_bundle("mini-deep").path, folder)
    deep = read_manifest(folder)
    sources = {"sources": recipe_of(folder.name).sources}
    protein = deep.encoders[1:]
    write_manifest(
        folder,
        replace(deep, encoders=protein, head=None, labels=(), thresholds={}, provenance=sources),
    )
    code, modules = imported("-m", "virnucpro", "bundle", "fetch", folder.name)
    assert code == 0
    assert modules & ENCODERS == set()


def test_help_pages_import_no_heavy_module():
    program = (
        "import contextlib\n"
        "from virnucpro.cli.main import main\n"
        f"for command in {COMMANDS!r}:\n"
        "    with contextlib.suppress(SystemExit):\n"
        "        main([*command.split(), '--help'])\n"
    )
    code, modules = imported("-c", program)
    assert code == 0
    assert modules & NOTHING == set()


def test_the_list_of_help_pages_is_complete(virnucpro):
    listed = re.findall(r"^ {4}(\w+)(?: |$)", virnucpro("--help").stdout, re.MULTILINE)
    assert set(listed) <= set(COMMANDS)
    assert len(listed) >= 10

"""Fixtures of the fault matrix: a small input, an undisturbed run, small disks."""

import hashlib
import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from programs import PREDICT, run_captured, started, take_apart
from samples import random_records

from virnucpro.cli.main import main
from virnucpro.run_dir import RunDirectory

DEEP = ["--bundle", "mini-deep"]
MINI_DEEP = Path(__file__).parents[2] / "virnucpro" / "bundles" / "mini-deep"
INTERRUPTED = Path(__file__).parents[1] / "data" / "interrupted.py"


@pytest.fixture(scope="session")
def few_fasta(tmp_path_factory):
    """120 records that make 120 rows in 4 units, and by open frames 129 rows in 5 units."""
    path = tmp_path_factory.mktemp("input") / "few.fa"
    path.write_text(random_records(120, seed=31))
    return path


@pytest.fixture(scope="session")
def undisturbed(tmp_path_factory, few_fasta, computing_here):
    """An undisturbed run with a file for each segment. Do not write to it, but to `copy_of_run`."""
    with computing_here():
        return _finished(tmp_path_factory.mktemp("undisturbed") / "run", few_fasta)


@pytest.fixture(scope="session")
def deep():
    """Options for transformers over open frames, which need many batches and two views."""
    return DEEP


@pytest.fixture(scope="session")
def undisturbed_deep(tmp_path_factory, few_fasta, computing_here):
    """An undisturbed run with the options `deep`. Do not write to it."""
    with computing_here():
        return _finished(tmp_path_factory.mktemp("undisturbed-deep") / "run", few_fasta, *DEEP)


def _finished(folder, fasta, *options):
    published = ["--published-files"] if options else []
    command = [*PREDICT, *published, fasta, "-o", folder, "-q", "--devices", "cpu:1", *options]
    assert main([*map(str, command)]) == 0
    RunDirectory(folder).logs.mkdir(exist_ok=True)
    return take_apart(folder).root


@pytest.fixture
def copy_of_run(undisturbed, tmp_path):
    """A copy of the undisturbed run."""
    return shutil.copytree(undisturbed, tmp_path / "finished")


@pytest.fixture
def bundle_with(tmp_path):
    """Return a function that copies mini-deep, changes one file and updates the manifest."""

    def make(name, change):
        folder = shutil.copytree(MINI_DEEP, tmp_path / "changed-mini")
        (folder / name).write_bytes(change((folder / name).read_bytes()))
        manifest = json.loads((folder / "bundle.json").read_text())
        content = (folder / name).read_bytes()
        manifest["files"][name] = {
            "sha256": hashlib.sha256(content).hexdigest(),
            "bytes": len(content),
        }
        (folder / "bundle.json").write_text(json.dumps(manifest))
        return folder

    return make


@pytest.fixture
def disk(tmp_path):
    """Return a function that mounts a small disk; it is unmounted after the test."""
    mounted = []

    def mount(size):
        folder = tmp_path / f"disk-{len(mounted)}"
        folder.mkdir()
        done = run_captured("mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", folder)
        if done.returncode != 0:
            pytest.skip(f"needs the right to mount a tmpfs (root): {done.stderr.strip()}")
        mounted.append(folder)
        return folder

    yield mount
    for folder in mounted:
        subprocess.run(["umount", "-l", folder], check=False, capture_output=True)


@pytest.fixture
def interrupted():
    """Return a function that runs the program with a signal when it opens or renames a file."""

    def run(moment, *arguments):
        signal_name, event, part, occurrence = (*moment, 1)[:4]
        command = [sys.executable, INTERRUPTED, signal_name, event, part, str(occurrence)]
        return started(*command, *arguments)

    return run

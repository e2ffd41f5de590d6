"""A process without home, user name, locale or shared memory, as in containers and cron jobs."""

import os
import shutil
import sys
import tempfile
from pathlib import Path

import pytest
from cases import slow
from programs import run_captured

SHARED_MEMORY = [
    "mount -t tmpfs -o size=4k none /dev/shm",
    slow("mount -t tmpfs -o ro none /dev/shm"),
    slow(
        "folder=$(mktemp -d) && mount -t tmpfs none $folder && "
        "for name in null urandom; do "
        "touch $folder/$name; mount --bind /dev/$name $folder/$name || exit 1; done; "
        "mount --rbind $folder /dev"
    ),
]


@pytest.fixture
def place():
    """A folder outside of /dev/shm, where the suite may have its temporary files."""
    with tempfile.TemporaryDirectory(dir="/var/tmp") as folder:
        yield Path(folder)


@pytest.mark.parametrize("mount", SHARED_MEMORY, ids=["4 kB", "read-only", "absent"])
def test_a_run_in_a_bare_container(mount, few_fasta, place, undisturbed, difference_of):
    """Without HOME, a passwd entry or a locale; Python is isolated, and warnings are errors."""
    script = f'{mount} && exec unshare --map-user=54321 "$@"'
    words = ["unshare", "--map-root-user", "--mount", "bash", "-c"]
    bare = {"env": {"LC_ALL": "C", "PATH": os.defpath}}
    if run_captured(*words, script, "bash", "true", **bare).returncode:
        pytest.skip("needs the right to make name spaces")
    python = [sys.executable, "-I", "-OO", "-W", "error", "-m", "virnucpro"]
    fasta = shutil.copy(few_fasta, place)
    command = ["predict", fasta, "-o", place / "run", "--devices", "cpu:1", "-q"]
    done = run_captured(*words, script, "bash", *python, *command, **bare)
    assert done.returncode == 0, done.stderr
    assert all(line.startswith("[virnucpro] ") for line in done.stderr.splitlines())
    assert difference_of(undisturbed, place / "run") == []

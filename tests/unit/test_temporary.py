"""Row 46: temporary folders of killed programs are removed by a later program, and no others."""

import os
import signal
import subprocess
import sys
import tempfile

import pytest

from virnucpro import owner, temporary
from virnucpro.temporary import owned_prefix

PROGRAM = """
import time
from virnucpro.api.run_folder import RunFolder

folder = RunFolder(None)
print(folder.path.parent, flush=True)
time.sleep(100)
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A TMPDIR in which no call of this process has looked."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    temporary._remove_leftovers.cache_clear()
    yield tmp_path
    temporary._remove_leftovers.cache_clear()


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def test_a_folder_is_removed_after_its_program_was_killed(folder):
    environment = {**os.environ, "TMPDIR": str(folder), "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", PROGRAM]
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as process:
        made = process.stdout.readline().strip().rpartition("/")[2]
        (folder / made / "run").mkdir()
        owned_prefix("input")
        assert names(folder) == [made]
        process.send_signal(signal.SIGKILL)
        process.wait(30)
        owned_prefix("input")  # looks once only
        assert names(folder) == [made]
        temporary._remove_leftovers.cache_clear()
        owned_prefix("input")
    assert names(folder) == []


def changed(prefix, **parts):
    """Return a name of a temporary folder with other parts."""
    words = dict(zip(["", "purpose", "pid", "start", "place"], prefix.split("-"), strict=False))
    return "-".join((words | parts).values()) + "-x"


def test_only_folders_of_dead_owners_in_the_same_place_are_removed(folder, tmp_path_factory):
    own = owned_prefix("run")
    temporary._remove_leftovers.cache_clear()
    dead = {"pid": str(os.getpid()), "start": "1"}  # its number is now that of another process
    (folder / changed(own, **dead) / "a").mkdir(parents=True)
    kept = [
        f"{own}x",
        changed(own, **dead, place="00000000"),  # of another machine or container
        changed(own, **dead, purpose="other folder"),
        "virnucpro-run-0123abcd",
    ]
    for name in kept:
        (folder / name).mkdir()
    (folder / changed(own, **dead, purpose="file")).write_text("text")
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    (folder / changed(own, **dead, purpose="link")).symlink_to(elsewhere)
    kept += [changed(own, **dead, purpose="file"), changed(own, **dead, purpose="link")]
    owned_prefix("run")
    assert names(folder) == sorted(kept)
    assert elsewhere.is_dir()


def test_without_proc_a_folder_has_no_owner(folder, monkeypatch):
    def no_proc(_):
        raise FileNotFoundError("/proc")

    monkeypatch.setattr(owner, "_start", no_proc)
    assert owned_prefix("run") == "virnucpro-run-"

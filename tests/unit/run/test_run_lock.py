import subprocess
import sys
import textwrap

import pytest
from samples import empty_run

from virnucpro.errors import RunLockedError
from virnucpro.folder_lock import is_held
from virnucpro.run.run import run_lock

HOLDER = textwrap.dedent("""
    import pathlib, sys
    from virnucpro.run.run import run_lock
    from virnucpro.run_dir import RunDirectory
    with run_lock(RunDirectory(pathlib.Path(sys.argv[1]))):
        print("held", flush=True)
        sys.stdin.read()
""")


@pytest.fixture
def holder(tmp_path):
    empty_run(tmp_path)
    process = subprocess.Popen(
        [sys.executable, "-c", HOLDER, tmp_path],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with process:
        assert process.stdout.readline() == "held\n"
        yield process
        process.kill()


def test_a_second_holder_is_refused_with_the_pid_of_the_first(tmp_path, holder):
    run = empty_run(tmp_path)
    assert is_held(run.lock)
    with pytest.raises(RunLockedError, match=f"pid {holder.pid}"), run_lock(run):
        pass
    holder.kill()
    holder.wait()
    assert not is_held(run.lock)
    with run_lock(run):
        assert run.lock.read_text().strip().isdigit()


def test_is_held_does_not_take_the_lock(tmp_path):
    run = empty_run(tmp_path)
    assert not is_held(run.lock)
    with run_lock(run):
        pass
    assert not is_held(run.lock)
    with run_lock(run):
        pass

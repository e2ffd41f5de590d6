"""Workers end with their parent, whatever ends the parent."""

import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest
from cases import slow
from programs import started

PROGRAM = Path(__file__).parents[2] / "data" / "coordinator_parent.py"


@pytest.fixture
def parent(tmp_path):
    """Start the program in a new process group; it ends with the test."""
    programs = []

    def start(worker, ending):
        words = [sys.executable, PROGRAM, tmp_path, worker, ending]
        process = started(*words, stdout=subprocess.PIPE)
        programs.append(process)
        return process, [int(pid) for pid in process.stdout.readline().split()]

    yield start
    for process in programs:
        with suppress(ProcessLookupError):  # also of a dead parent: orphans hold its pipes
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


def lives(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False


def assert_gone(pids, seconds=20):
    deadline = time.monotonic() + seconds
    while any(lives(pid) for pid in pids):
        assert time.monotonic() < deadline, "workers outlive their parent"
        time.sleep(0.01)


def test_workers_die_with_a_killed_parent(parent):
    """They sleep, hang in C, and ignore SIGTERM."""
    process, pids = parent("hang_in_each_way", "wait")
    assert len(pids) == 3
    assert all(lives(pid) for pid in pids)
    process.kill()
    process.wait()
    assert_gone(pids)


def test_workers_die_with_a_parent_killed_while_they_start(parent):
    for _ in range(3):
        process, pids = parent("hang", "at once")
        process.kill()
        process.wait()
        assert_gone(pids)


@pytest.mark.parametrize(
    ("ending", "code", "error"),
    [slow("raise", 1, "the parent had enough"), slow("fall off the end", 0, ""), ("_exit", 5, "")],
)
def test_workers_die_with_a_parent_that_ends_without_waiting(parent, ending, code, error):
    process, pids = parent("hang", ending)
    _, errors = process.communicate(timeout=20)
    assert process.returncode == code
    assert error in errors
    assert_gone(pids)


def test_ctrl_c_at_a_terminal_is_handled_by_the_parent(parent):
    process, pids = parent("hang", "wait")
    os.killpg(process.pid, signal.SIGINT)
    output, errors = process.communicate(timeout=20)
    assert output.split() == ["running"] * 3 + ["stopped"] * 3
    assert errors == ""
    assert_gone(pids)

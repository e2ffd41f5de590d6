"""Programs with a dispatcher end in different ways; no worker may remain."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from cases import slow
from programs import SCRIPTS, run_captured

PROGRAM = Path(__file__).parents[1] / "data" / "dispatch_program.py"

pytestmark = pytest.mark.timeout(60)


@pytest.fixture
def program(tmp_path):
    """Start the program in a new session; kill all of it after the test."""
    started = []

    def start(what):
        process = subprocess.Popen(
            [sys.executable, str(PROGRAM), what, str(tmp_path)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        started.append(process)
        return process

    yield start
    for process in started:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


@pytest.mark.parametrize(
    ("signum", "what"),
    [
        (signal.SIGKILL, "wait_deaf"),
        (signal.SIGTERM, "wait"),
        slow(signal.SIGKILL, "wait"),
        slow(signal.SIGTERM, "wait_deaf"),
        slow(signal.SIGHUP, "wait"),
        slow(signal.SIGHUP, "wait_deaf"),
    ],
)
def test_workers_die_with_a_killed_program(program, no_orphan, what, signum):
    process = program(what)
    for _ in range(2):
        assert int(process.stdout.readline())
    process.send_signal(signum)
    assert process.wait(timeout=20) == -signum
    no_orphan(process.pid)


def test_workers_die_with_a_program_killed_while_they_start(program, no_orphan):
    for delay in (0.1, 0.2, 0.3):
        process = program("wait")
        time.sleep(delay)
        process.kill()
        process.wait(timeout=20)
        no_orphan(process.pid)


def test_ctrl_c_at_a_terminal_ends_the_run_and_is_raised(program, no_orphan):
    process = program("interrupt")
    for _ in range(2):
        assert int(process.stdout.readline())
    os.killpg(process.pid, signal.SIGINT)
    output, errors = process.communicate(timeout=20)
    assert output == "interrupted 0 1\n"
    assert errors == ""
    assert process.returncode == 0
    no_orphan(process.pid)


@pytest.mark.parametrize("what", ["half_a_map", slow("daemon_thread")])
def test_an_unfinished_run_does_not_keep_a_program_from_exiting(program, no_orphan, what):
    process = program(what)
    _, errors = process.communicate(timeout=20)
    assert process.returncode == 0
    if what == "half_a_map":  # an interrupted thread may print an error
        assert errors == ""
    no_orphan(process.pid)


def test_a_worker_can_be_defined_in_the_main_program(program):
    output, errors = program("of_main").communicate(timeout=20)
    assert output.split() == ["0", "7", "14"]
    assert errors == ""


def test_a_script_for_the_public_dispatcher_runs_unchanged():
    script = PROGRAM.with_name("inference_script.py")
    done = run_captured(sys.executable, script, code=0)
    # Two workers write at the same time, so lines may be joined. With the table they are silent.
    for message in ("[GPU 0] resnet is loaded", "[GPU 1] resnet is loaded", "[GPU 1] cleaned up"):
        assert done.stdout.count(message) == 1
    assert done.stdout.splitlines()[-4:] == [
        "58 completed, 1 failed, 1 late",
        "38 completed, 1 failed, 1 late",
        "GPU 0: finished",
        "GPU 1: finished",
    ]


@pytest.mark.scripts
def test_the_picture_of_the_gallery_is_drawn(tmp_path):
    run_captured(sys.executable, SCRIPTS / "dashboard.py", tmp_path / "table.svg", code=0)
    picture = (tmp_path / "table.svg").read_text()
    assert "RichDispatcher" in picture
    assert "processing" in picture

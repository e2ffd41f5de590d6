"""Other programs: their output, their exit codes, and their end with this program."""

import os
import signal
import subprocess
import sys
import threading
import time

import pytest

from virnucpro.errors import EngineError
from virnucpro.runtime.program import output_of, run_programs
from virnucpro.runtime.signals import StopRequested, stop_on_signals


def test_output():
    assert output_of(["echo", "7;cluster"]) == "7;cluster\n"


def test_a_failure_names_the_program_and_its_message():
    with pytest.raises(EngineError, match=r"sh failed with exit code 3: no partition"):
        output_of(["sh", "-c", "echo no partition >&2; exit 3"])
    with pytest.raises(FileNotFoundError):
        output_of(["no-such-program-here"])


def test_exit_codes_in_order():
    commands = [["sh", "-c", "exit 2"], ["true"], ["sh", "-c", "kill -9 $$"]]
    assert run_programs(commands, limit=2) == [2, 0, -9]


def test_at_most_limit_at_once(tmp_path):
    """Each program fails if another one has its lock."""
    commands = [["flock", "-n", tmp_path / "lock", "sleep", "0.05"]] * 3
    assert run_programs(commands, limit=1) == [0, 0, 0]


def test_a_stop_ends_the_programs(tmp_path):
    def stop():
        while not (tmp_path / "runs").exists():
            time.sleep(0.01)
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=stop).start()
    waiting = ["sh", "-c", f"touch {tmp_path}/runs; exec sleep 60"]
    began = time.monotonic()
    with pytest.raises(StopRequested), stop_on_signals():
        run_programs([waiting, ["touch", tmp_path / "second"]], limit=1)
    assert time.monotonic() - began < 30
    assert not (tmp_path / "second").exists()


def test_ctrl_c_gives_the_programs_one_signal(tmp_path):
    """A terminal signals the whole process group; a second signal would skip an orderly end."""
    log = tmp_path / "signals"
    task = (
        f"trap 'echo INT >> {log}' INT; trap 'echo TERM >> {log}; over=1' TERM; "
        f"touch {tmp_path}/on; "
        'while [ -z "$over" ]; do sleep 0.05; done; sleep 0.2'
    )
    program = (
        "from virnucpro.runtime.program import run_programs\n"
        "from virnucpro.runtime.signals import stop_on_signals\n"
        f"with stop_on_signals(): run_programs([['sh', '-c', {task!r}]], limit=1)"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    words = [sys.executable, "-c", program]
    with subprocess.Popen(
        words, env=environment, process_group=0, stderr=subprocess.DEVNULL
    ) as one:
        while not (tmp_path / "on").exists():
            time.sleep(0.01)
        os.killpg(one.pid, signal.SIGINT)
    assert log.read_text().split() == ["TERM"]

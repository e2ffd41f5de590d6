"""Ranks that are started before the input is read: none outlives a command that ends early."""

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

EXAMPLE = "tests/data/example.fa"


@pytest.fixture
def waiting(tmp_path, ranks_of):
    """Start a run that waits for its standard input, its two ranks with it."""
    started = []

    def start(*options):
        command = ["predict", "-", "-o", str(tmp_path / "run"), "--devices", "cpu:2", *options]
        process = subprocess.Popen(
            [sys.executable, "-m", "virnucpro", *command],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        started.append(process)
        deadline = time.monotonic() + 60
        while len(ranks_of(process)) < 2:
            assert process.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.01)
        return process, set(ranks_of(process))

    yield start
    for process in started:
        if process.poll() is None:
            process.kill()
        process.communicate()


def test_the_ranks_that_stood_by_do_the_work(waiting, tmp_path):
    process, ranks = waiting()
    _, errors = process.communicate(Path(EXAMPLE).read_text(), timeout=100)
    assert process.returncode == 0, errors
    rows = (tmp_path / "run" / "predictions.tsv").read_text().splitlines()
    assert len(rows) == 8
    records = (tmp_path / "run" / "status.json").read_text()
    assert all(f'"pid": {rank}' in records for rank in ranks)


@pytest.mark.parametrize(
    ("signum", "code"),
    [(signal.SIGKILL, -9), (signal.SIGTERM, 143), (signal.SIGINT, 130), (signal.SIGHUP, 129)],
)
def test_they_end_with_a_command_that_is_stopped(waiting, no_orphan, tmp_path, signum, code):
    process, _ = waiting()
    os.killpg(process.pid, signum) if signum == signal.SIGINT else process.send_signal(signum)
    process.communicate(timeout=60)
    assert process.returncode == code
    no_orphan(process.pid)
    assert not (tmp_path / "run").exists() or signum == signal.SIGKILL


def test_they_end_with_a_command_that_finds_its_input_bad(waiting, no_orphan, tmp_path):
    process, _ = waiting()
    _, errors = process.communicate("no sequence\n", timeout=60)
    assert process.returncode == 1
    assert errors.startswith("[virnucpro] reading sequences\nvirnucpro: error: ")
    assert "Traceback" not in errors
    no_orphan(process.pid)
    assert not (tmp_path / "run").exists()


@pytest.mark.slow
@pytest.mark.timeout(400)
@pytest.mark.parametrize("turn", range(4))
def test_a_stop_at_whatever_moment_of_the_start_is_heard(turn, tmp_path, no_orphan):
    """Most of it is imports, in which an exception may vanish or print what nobody understands."""
    dice = random.Random(turn)
    for number in range(25):
        signum = dice.choice([signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
        folder = str(tmp_path / f"run-{number}")
        command = ["predict", EXAMPLE, "-q", "--devices", "cpu:2", "-o", folder]
        process = subprocess.Popen(
            [sys.executable, "-m", "virnucpro", *command],
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        time.sleep(dice.uniform(0.15, 1.3))
        process.send_signal(signum)
        _, said = process.communicate(timeout=60)
        ended = {-signum, 128 + signum}  # the first until the command hears of signals itself
        assert process.returncode in ended, said
        assert "Traceback" not in said
        assert "Exception" not in said
        no_orphan(process.pid)

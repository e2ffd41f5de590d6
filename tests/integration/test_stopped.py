"""A whole run is stopped or killed: commits are kept and no process remains."""

import os
import random
import signal
import subprocess
import sys
import time

import pytest

from virnucpro.run_dir import RunDirectory

pytestmark = pytest.mark.timeout(110)
DEADLINE = 60.0
N_RECORDS = 800
EXAMPLE = "tests/data/example.fa"


@pytest.fixture(scope="module")
def long_fasta(tmp_path_factory):
    """Some seconds of work on two ranks."""
    dice = random.Random(11)
    codons = [a + b + c for a in "ACGT" for b in "ACGT" for c in "ACGT"]
    coding = [codon for codon in codons if codon not in {"TAA", "TAG", "TGA"}]
    path = tmp_path_factory.mktemp("input") / "long.fa"
    with path.open("w") as stream:
        for number in range(N_RECORDS):
            stream.write(f">r{number}\n{''.join(dice.choices(coding, k=160))}\n")
    return path


def started(fasta, folder):
    """Start a run of two ranks and wait for its first commit."""
    command = [sys.executable, "-m", "virnucpro", "predict", fasta, "-o", folder]
    process = subprocess.Popen(
        [*command, "--devices", "cpu:2", "--resume"],
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    before = len(RunDirectory(folder).segments())
    deadline = time.monotonic() + DEADLINE
    while len(RunDirectory(folder).segments()) <= before:
        assert process.poll() is None, process.stderr.read()
        assert time.monotonic() < deadline
        time.sleep(0.01)
    return process


@pytest.mark.parametrize(
    ("signum", "whole_group"),
    [
        pytest.param(signal.SIGINT, True, marks=pytest.mark.slow),
        (signal.SIGTERM, False),
        pytest.param(signal.SIGTERM, True, marks=pytest.mark.slow),
        pytest.param(signal.SIGHUP, False, marks=pytest.mark.slow),
    ],
)
def test_a_stopped_run_keeps_committed_units_and_its_reason(
    signum, whole_group, long_fasta, tmp_path, no_orphan, virnucpro
):
    folder = tmp_path / "run"
    with started(long_fasta, folder) as process:
        committed = RunDirectory(folder).segments()
        os.killpg(process.pid, signum) if whole_group else process.send_signal(signum)
        _, message = process.communicate(timeout=10)
        assert process.returncode == 128 + signum
        assert "--resume" in message
        assert "Traceback" not in message
        no_orphan(process.pid)
    assert set(committed) <= set(RunDirectory(folder).segments())
    assert not (folder / "predictions.tsv").exists()
    log = (folder / "logs" / "coordinator.log").read_text().splitlines()
    assert log[-1].endswith(f"the run was stopped by {signum.name}")
    printed = virnucpro("status", folder).stdout
    assert printed.count(f"stopped by {signal.Signals(signum).name}") == 2
    assert "killed by" not in printed


def test_a_killed_coordinator_leaves_no_orphan_and_a_resumable_run(
    long_fasta, tmp_path, virnucpro, tables, no_orphan, ranks_of
):
    folder = tmp_path / "run"
    with started(long_fasta, folder) as process:
        assert len(ranks_of(process)) == 2
        process.kill()
        process.wait()
        no_orphan(process.pid)
    status = virnucpro("status", folder)
    assert "incomplete" in status.stdout
    done = virnucpro("predict", long_fasta, "-o", folder, "--resume", "--devices", "cpu:2")
    assert done.returncode == 0, done.stderr
    rows = tables(folder / "predictions.tsv")
    assert len(rows) == N_RECORDS
    assert {row["status"] for row in rows} == {"scored"}


@pytest.mark.slow
@pytest.mark.timeout(400)
@pytest.mark.parametrize("turn", range(4))
def test_a_stop_signal_works_at_any_moment_of_the_start(turn, tmp_path, no_orphan):
    """Most of the start is imports, where an exception may be lost or printed."""
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
        _, message = process.communicate(timeout=60)
        ended = {-signum, 128 + signum}  # the first before the command handles signals
        assert process.returncode in ended, message
        assert "Traceback" not in message
        assert "Exception" not in message
        no_orphan(process.pid)

"""A whole run is stopped or killed: commits are kept and no process remains."""

import os
import random
import signal
import time

import pytest
from cases import slow
from programs import VIRNUCPRO, started, stuck_after, wait_until
from samples import random_records

from virnucpro.run_dir import RunDirectory

N_RECORDS = 120
EXAMPLE = "tests/data/example.fa"


@pytest.fixture(scope="module")
def long_fasta(tmp_path_factory):
    """Two units or more for each of two ranks."""
    path = tmp_path_factory.mktemp("input") / "long.fa"
    path.write_text(random_records(N_RECORDS, seed=11, least=160))
    return path


def half_done(fasta, folder):
    """Start a run of two ranks, and return it when each rank waits for its end in a commit."""
    fired = folder.with_name("fired")
    command = [*stuck_after(1, fired), "predict", fasta, "-o", folder, "--devices", "cpu:2"]
    process = started(*command)
    wait_until(lambda: fired.exists() and fired.stat().st_size >= 2, process)
    return process


@pytest.mark.parametrize(
    ("signum", "whole_group"),
    [
        slow(signal.SIGINT, True),
        (signal.SIGTERM, False),
        slow(signal.SIGTERM, True),
        slow(signal.SIGHUP, False),
    ],
)
def test_a_stopped_run_keeps_committed_units_and_its_reason(
    signum, whole_group, long_fasta, tmp_path, no_orphan, called
):
    folder = tmp_path / "run"
    with half_done(long_fasta, folder) as process:
        committed = RunDirectory(folder).segments()
        os.killpg(process.pid, signum) if whole_group else process.send_signal(signum)
        _, message = process.communicate(timeout=10)
        assert process.returncode == 128 + signum
        assert "--resume" in message
        assert "Traceback" not in message
        no_orphan(process.pid)
    assert set(committed) <= set(RunDirectory(folder).segments())
    assert not (folder / "predictions.tsv").exists()
    log = (folder / "run" / "logs" / "coordinator.log").read_text().splitlines()
    assert log[-1].endswith(f"the run was stopped by {signum.name}")
    printed = called("status", folder).stdout
    assert printed.count(f"stopped by {signal.Signals(signum).name}") == 2
    assert "killed by" not in printed


def test_a_killed_coordinator_leaves_no_orphan_and_a_resumable_run(
    long_fasta, tmp_path, called, computing_here, tables, no_orphan, ranks_of
):
    folder = tmp_path / "run"
    with half_done(long_fasta, folder) as process:
        assert len(ranks_of(process)) == 2
        process.kill()
        process.wait()
        no_orphan(process.pid)
    assert "incomplete" in called("status", folder).stdout
    with computing_here():
        called("predict", long_fasta, "-o", folder, "--resume", "--devices", "cpu:1", code=0)
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
        folder = tmp_path / f"run-{number}"
        command = ["predict", EXAMPLE, "-q", "--devices", "cpu:2", "-o", str(folder)]
        process = started(*VIRNUCPRO, *command)
        time.sleep(dice.uniform(0.15, 1.3))
        process.send_signal(signum)
        _, message = process.communicate(timeout=60)
        no_orphan(process.pid)
        if "KeyboardInterrupt" in message and "__main__.py" not in message:
            continue  # the interpreter itself was hit, before or after the command
        if process.returncode == 0:  # a fast machine needs less than a second
            assert (folder / "report.html").exists()
        else:  # -signum before the command handles signals
            assert process.returncode in {-signum, 128 + signum}, message
        assert "Traceback" not in message
        assert "Exception" not in message

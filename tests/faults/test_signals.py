"""Rows 4 and 5: the coordinator gets SIGKILL or a stop signal at many moments."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from cases import slow
from programs import PREDICT, VIRNUCPRO, run_captured, segments_in, started, wait_until, with_fault

from virnucpro.cli.main import main
from virnucpro.compute.predict import predict
from virnucpro.run.execution import Execution
from virnucpro.run.predict_job import predict_job
from virnucpro.run_dir import RunDirectory
from virnucpro.runtime.signals import ECHO_S

STOPPING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
WARNINGS = (signal.SIGUSR1, signal.SIGUSR2, signal.SIGXCPU, signal.SIGALRM)
DEADLINE = 60.0


def case(*moment, often=False):
    """Return a case: signal, event, part of the file's name, and its occurrence (the first)."""
    marks = () if often else pytest.mark.slow
    return pytest.param(moment, marks=marks, id="-".join(moment[:3]))


# `open` is the moment before a file's first byte, `os.rename` the one before the file appears.
BEFORE_RANKS = [
    case("SIGINT", "open", "columns.bin"),
    case("SIGTERM", "open", "bases.npy"),
    case("SIGHUP", "open", "item_row.npy"),
    case("SIGTERM", "os.rename", "/index."),
    case("SIGINT", "os.rename", "run.json"),
    case("SIGTERM", "open", "0001.json", often=True),
    case("SIGKILL", "open", "bases.npy"),
    case("SIGKILL", "open", "item_row.npy"),
    case("SIGKILL", "os.rename", "/index."),
    case("SIGKILL", "open", "run.json", 2),
    case("SIGKILL", "os.rename", "run.json"),
    case("SIGKILL", "os.rename", "0001.json"),
]
AFTER_RANKS = [
    case("SIGINT", "open", "windows.tsv"),
    case("SIGTERM", "os.rename", "windows.tsv", often=True),
    case("SIGHUP", "open", "regions.tsv"),
    case("SIGTERM", "open", "predictions.tsv"),
    case("SIGINT", "os.rename", "embeddings.h5"),
    case("SIGTERM", "os.rename", "run.json"),
    case("SIGKILL", "open", "windows.tsv"),
    case("SIGKILL", "os.rename", "predictions.tsv", often=True),
    case("SIGKILL", "os.rename", "embeddings.h5"),
]


def assert_hit(process, signal_name, no_orphan):
    """Check that the process ended by the signal and left no orphan."""
    signum = signal.Signals[signal_name]
    _, printed = process.communicate(timeout=DEADLINE)
    no_orphan(process.pid)
    if signum == signal.SIGKILL:
        assert process.returncode == -signum
        return
    assert process.returncode == 128 + signum, printed
    assert "--resume" in printed
    assert "Traceback" not in printed


@pytest.mark.parametrize("moment", BEFORE_RANKS)
def test_a_signal_while_the_run_is_prepared(
    moment, interrupted, few_fasta, tmp_path, no_orphan, undisturbed, difference_of, computing_here
):
    folder = tmp_path / "run"
    command = ["predict", few_fasta, "-o", folder, "--devices", "cpu:1", "--resume"]
    with interrupted(moment, *command) as process:
        assert_hit(process, moment[0], no_orphan)
    if moment[0] != "SIGKILL":
        assert not list(tmp_path.rglob("*.tmp"))
        if not (folder / "run" / "run.json").exists():
            assert not folder.exists()
    assert not RunDirectory(folder).segments()
    with computing_here():
        assert main([*map(str, command), "-q"]) == 0
    assert difference_of(undisturbed, folder) == []
    assert not list(tmp_path.rglob("*.tmp"))


@pytest.mark.parametrize("former", [True, slow(False)], ids=["over former tables", "first tables"])
@pytest.mark.parametrize("moment", AFTER_RANKS)
def test_a_signal_while_tables_are_written(
    moment, former, interrupted, few_fasta, copy_of_run, no_orphan, undisturbed, difference_of
):
    outputs = [path for path in copy_of_run.iterdir() if path.suffix in {".tsv", ".txt", ".h5"}]
    if not former:
        for path in outputs:
            path.unlink()
    command = ["predict", few_fasta, "-o", copy_of_run, "--resume"]
    with interrupted(moment, *command) as process:
        assert_hit(process, moment[0], no_orphan)
    for path in outputs:  # complete: new or as before
        if path.exists():
            assert path.read_bytes() == (undisturbed / path.name).read_bytes()
        else:
            assert not former
    if moment[0] != "SIGKILL":
        assert not list(copy_of_run.rglob("*.tmp"))
    assert main([*map(str, command), "-q"]) == 0
    assert difference_of(undisturbed, copy_of_run) == []
    assert not list(copy_of_run.rglob("*.tmp"))


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_run_killed_at_any_moment_completes(
    few_fasta, tmp_path, no_orphan, undisturbed, difference_of
):
    """Kill each start after another delay, until one completes."""
    dice = random.Random(4)
    for campaign in range(6):
        folder = tmp_path / f"run-{campaign}"
        command = [*PREDICT, few_fasta, "-o", folder, "--devices", "cpu:2", "--resume", "-q"]
        kept = set()
        for _ in range(3):
            with started(*VIRNUCPRO, *command, stderr=None) as process:
                try:
                    process.wait(dice.uniform(0.3, 8.0))
                except subprocess.TimeoutExpired:
                    process.kill()
                process.wait()
                no_orphan(process.pid)
            now = segments_in(folder).items()
            assert kept <= now
            kept = now
        assert main([*map(str, command)]) == 0
        assert difference_of(undisturbed, folder) == []
        assert not list(folder.rglob("*.tmp"))


def is_stopped(pid):
    """Return whether a process is stopped."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"


def has_pending(pid, signum):
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    masks = [int(line.split()[1], 16) for line in lines if line.startswith(("SigPnd", "ShdPnd"))]
    return any(mask >> (signum - 1) & 1 for mask in masks)


@pytest.mark.parametrize("second", [signal.SIGTERM, slow(signal.SIGINT)])
def test_a_second_signal_ends_the_run_at_once(second, few_fasta, tmp_path, ranks_of, no_orphan):
    # The stopped rank ignores SIGTERM, so the stop ladder takes 5 s.
    program = with_fault(tmp_path / "fired", point="commit", how="SIGSTOP")
    command = [*program, "predict", few_fasta, "-o", tmp_path / "run", "--devices", "cpu:1"]
    with started(*command) as process:
        wait_until((tmp_path / "fired").exists, process)
        (rank,) = ranks_of(process)
        wait_until(lambda: is_stopped(rank), process)
        process.send_signal(signal.SIGTERM)
        wait_until(lambda: has_pending(rank, signal.SIGTERM), process)
        time.sleep(ECHO_S)  # within that time a repetition is the same request
        asked = time.monotonic()
        process.send_signal(second)
        assert process.wait(timeout=DEADLINE) == 128 + second
        assert time.monotonic() - asked < 2.0
        no_orphan(process.pid)


@pytest.mark.slow
def test_a_run_under_nohup_ignores_sighup(few_fasta, tmp_path, undisturbed, difference_of):
    fired, gate = tmp_path / "fired", tmp_path / "gate"
    program = ["nohup", *with_fault(fired, point="commit", how="wait", gate=str(gate))]
    command = [*program, "predict", few_fasta, "-o", tmp_path / "run", "--devices", "cpu:1"]
    with started(*command) as process:
        wait_until(fired.exists, process)
        os.killpg(process.pid, signal.SIGHUP)
        gate.touch()
        _, printed = process.communicate(timeout=DEADLINE)
        assert process.returncode == 0, printed
    assert difference_of(undisturbed, tmp_path / "run") == []


@pytest.mark.parametrize("signum", [slow(signal.SIGUSR1), *WARNINGS[1:]])
def test_a_scheduler_warns_all_processes_of_a_run(
    signum, few_fasta, tmp_path, no_orphan, undisturbed, difference_of
):
    """As ``scancel --full`` and ``sbatch --signal=USR2@120`` do; only the command acts on it."""
    folder, fired = tmp_path / "run", tmp_path / "fired"
    program = with_fault(fired, point="commit", number=1, how="sleep")
    words = ["predict", few_fasta, "-o", folder, "--devices", "cpu:1"]
    with started(*program, *words) as process:
        wait_until(fired.exists, process)
        os.killpg(process.pid, signum)
        _, printed = process.communicate(timeout=DEADLINE)
        assert process.returncode == 143, printed
        assert f"stopped ({signum.name}). Finished work is kept" in printed
        assert "restart" not in printed
        no_orphan(process.pid)
    launch = json.loads(RunDirectory(folder).run_json.read_text())["launches"][0]
    assert launch["ranks"]["0"]["faults"] == []
    assert len(RunDirectory(folder).segments()) == 1
    assert main([*map(str, words), "--resume", "-q"]) == 0
    assert difference_of(undisturbed, folder) == []


@pytest.fixture
def own_handlers():
    """Signal handlers of a program that uses the library."""

    def handler(signum, frame):
        raise AssertionError(signum)

    before = {signum: signal.signal(signum, handler) for signum in (*STOPPING, *WARNINGS)}
    yield dict.fromkeys(before, handler)
    for signum, one in before.items():
        signal.signal(signum, one)


def handlers():
    return {signum: signal.getsignal(signum) for signum in (*STOPPING, *WARNINGS)}


def test_the_library_changes_no_signal_handler(own_handlers, copy_of_run, few_fasta, doubles):
    seen = []
    reporter = doubles.CallingReporter(lambda _: seen.append(handlers()))
    predict(predict_job([str(few_fasta)]), Execution(copy_of_run, resume=True), reporter)
    assert len(seen) >= 3
    assert all(one == own_handlers for one in seen)
    assert handlers() == own_handlers


@pytest.mark.parametrize(
    ("arguments", "code"), [(["bundle", "list"], 0), (["status", "/nowhere"], 1)]
)
def test_the_command_line_restores_signal_handlers(arguments, code, own_handlers, capsys):
    assert main(arguments) == code
    assert handlers() == own_handlers


@pytest.mark.parametrize("signum", STOPPING)
def test_signal_handlers_are_restored_after_a_stop(
    signum, own_handlers, copy_of_run, few_fasta, reporting, capsys
):
    reporting(lambda _: os.kill(os.getpid(), signum))
    command = ["predict", str(few_fasta), "-o", str(copy_of_run), "--resume"]
    assert main(command) == 128 + signum
    assert handlers() == own_handlers


WARNED_IN_IMPORT = """
import os, signal, sys
import virnucpro.__main__ as program

class Warned:
    def find_spec(self, name, *_):
        if name == imported:
            os.kill(os.getpid(), signum)

signum, imported = signal.Signals[sys.argv.pop()], sys.argv.pop()
sys.meta_path.insert(0, Warned())
program.run()
"""


@pytest.mark.parametrize(
    ("imported", "name"),
    [
        ("virnucpro.cli.main", "SIGUSR1"),
        ("virnucpro.run.predict_job", "SIGUSR2"),
        ("virnucpro.run.predict_job", "SIGXCPU"),
        ("virnucpro.cli.main", "SIGALRM"),
    ],
)
def test_a_schedulers_warning_during_the_imports_is_a_stop(imported, name):
    words = ("predict", "x", "-o", "y", "--task", "0/2")
    done = run_captured(sys.executable, "-c", WARNED_IN_IMPORT, *words, imported, name)
    assert done.returncode == 128 + signal.SIGTERM, done.stderr

"""Row 25: a campaign of random signals, and its checks. The long soak is scripts/soak.sh."""

import importlib
import os
import random
import shutil
import signal
import subprocess
import sys
import threading
from pathlib import Path

import h5py
import numpy as np
import pytest
from programs import run_captured

from virnucpro.run_dir import RunDirectory

SCRIPTS = Path(__file__).parents[2] / "scripts"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("bundle", "tasks"), [("mini-deep", ()), ("mini", ()), ("mini", ("--tasks", "2"))]
)
def test_a_run_of_two_ranks_under_random_signals_completes(bundle, tasks, tmp_path):
    """The seed differs in each run; a failure prints it."""
    seed = random.SystemRandom().randrange(10**6)
    done = run_captured(
        *(sys.executable, SCRIPTS / "soak.py", "--campaigns", "1", "--seed", str(seed)),
        *("--max-ranks", "2", "--records", "100", "--max-signals", "1", "--folder", tmp_path),
        *("--bundle", bundle, *tasks),
        timeout=110,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "0 lost, 0 doubled, 0 not finite" in done.stdout
    assert "every campaign is complete" in done.stdout
    assert not list(tmp_path.iterdir())


@pytest.fixture
def checks(monkeypatch):
    monkeypatch.syspath_prepend(SCRIPTS)
    yield importlib.import_module("soaking.checks")
    for name in [name for name in sys.modules if name.startswith("soak")]:
        del sys.modules[name]


@pytest.fixture
def campaign(checks):
    return importlib.import_module("soaking.campaign")


@pytest.fixture
def signals(checks):
    return importlib.import_module("soaking.signals")


@pytest.mark.parametrize("number", ["0", "-1"])
def test_a_soak_of_no_campaigns_is_refused(number, checks, tmp_path, capsys):
    soak = importlib.import_module("soak")
    with pytest.raises(SystemExit, match="2"):
        soak.main(["--campaigns", number, "--folder", str(tmp_path)])
    printed = capsys.readouterr()
    assert "give 1 or more" in printed.err
    assert "no problem found" not in printed.out
    assert not list(tmp_path.iterdir())


def test_a_good_run_passes_all_checks(checks, copy_of_run, undisturbed):
    run = RunDirectory(copy_of_run)
    assert checks.count_rows(run)[1:] == (0, 0, 0, 0)
    assert not list(checks.folder_problems(run))
    assert not list(checks.table_problems(RunDirectory(undisturbed), run))


def test_missing_and_duplicate_rows_are_counted(checks, copy_of_run):
    run = RunDirectory(copy_of_run)
    (_, first), (unit, second), *_ = run.segments()
    with h5py.File(first) as file:
        n_rows = len(file["rows"])
    first.unlink()
    assert checks.count_rows(run)[1:3] == (n_rows, 0)
    with h5py.File(second) as file:
        n_twice = len(file["rows"])
    run.segment(0, 900).write_bytes(second.read_bytes())  # rows of another unit
    assert checks.count_rows(run)[1:3] == (n_rows, n_twice)
    run.shard(1).mkdir()
    run.segment(1, unit).write_bytes(
        second.read_bytes()
    )  # another copy of a unit has no duplicate rows
    assert checks.count_rows(run)[1:] == (n_rows, n_twice, 0, 1)


def test_nan_and_infinity_are_counted(checks, copy_of_run):
    run = RunDirectory(copy_of_run)
    with h5py.File(run.segments()[0][1], "r+") as file:
        file["scores"][2, 1] = np.nan
        file["state"][3] = 1
    assert checks.count_rows(run).not_finite == 2


def test_rewritten_and_missing_segments_are_found(checks, copy_of_run):
    run = RunDirectory(copy_of_run)
    ledger = checks.Ledger(run)
    assert not list(ledger.problems())
    (_, same), (_, gone), *_ = run.segments()
    content = same.read_bytes()
    same.unlink()
    same.write_bytes(content)
    gone.unlink()
    problems = list(ledger.problems())
    assert [str(same) in problems[0], "rewritten" in problems[0]] == [True, True]
    assert [str(gone) in problems[1], "missing" in problems[1]] == [True, True]
    assert len(problems) == 2


@pytest.mark.parametrize(
    "name", ["predictions.tsv", "tracks/windows.tsv", "prediction_results.txt"]
)
def test_a_changed_score_is_found_and_rounding_is_not(name, checks, undisturbed_deep, tmp_path):
    copy = shutil.copytree(undisturbed_deep, tmp_path / "copy")
    table = copy / name
    header, first, *rest = table.read_text().splitlines()
    column = header.split("\t").index("score2" if name.endswith(".txt") else "score")
    for step, n_problems in ((0.0001, 0), (0.01, 1)):
        cells = first.split("\t")
        cells[column] = str(float(cells[column]) + step)
        table.write_text("\n".join([header, "\t".join(cells), *rest]) + "\n")
        found = list(checks.table_problems(RunDirectory(undisturbed_deep), RunDirectory(copy)))
        assert len(found) == n_problems, found


def test_other_bytes_are_found(checks, copy_of_run, undisturbed):
    run, alone = RunDirectory(copy_of_run), RunDirectory(undisturbed)
    assert not list(checks.byte_problems(alone, run))
    run.extract("viral").unlink()
    run.windows.write_bytes(run.windows.read_bytes().replace(b"scored", b"Scored", 1))
    found = [problem.partition(":")[0] for problem in checks.byte_problems(alone, run)]
    assert found == [str(run.windows), str(run.extract("viral"))]


def test_changed_vectors_are_found(checks, copy_of_run, undisturbed):
    with h5py.File(copy_of_run / "embeddings.h5", "r+") as file:
        file["embeddings"][5] = file["embeddings"][6]
    (problem,) = checks.table_problems(RunDirectory(undisturbed), RunDirectory(copy_of_run))
    assert "1 vectors differ" in problem


def test_a_temporary_file_is_found(checks, copy_of_run):
    left = copy_of_run / "run" / "shards" / "rank-0000" / "unit-000001.h5.12-0123abcd.tmp"
    left.touch()
    (problem,) = checks.folder_problems(RunDirectory(copy_of_run))
    assert problem == f"{left}: temporary file left"


@pytest.mark.parametrize(
    ("code", "sent", "wrong"),
    [
        (0, [], False),
        (2, ["rank SIGKILL"] * 3, True),
        (2, ["rank SIGKILL"] * 4, False),
        (1, ["helper SIGKILL"] * 9, True),
        (-9, ["coordinator SIGKILL"], False),
        (-9, ["rank SIGKILL"], True),
        (143, ["coordinator SIGTERM"], False),
        (143, ["coordinator SIGKILL"], True),
        (None, [], True),
    ],
)
def test_an_exit_code_without_a_matching_signal_is_a_problem(code, sent, wrong, campaign, signals):
    given = [signals.SentSignal(role, signal.Signals[name]) for role, name in map(str.split, sent)]
    assert bool(campaign.end_problems(RunDirectory(Path("run")), code, given)) == wrong


def test_a_frozen_session_is_continued(signals):
    with subprocess.Popen(["sleep", "60"], start_new_session=True) as other:
        state = Path(f"/proc/{other.pid}/stat")
        states = []
        watch = threading.Timer(0.3, lambda: states.append(state.read_text().split()[2]))
        watch.start()
        assert str(signals.freeze_session(other.pid, 0.6)) == "all SIGSTOP"
        watch.join()
        assert states == ["T"]
        os.kill(other.pid, signal.SIGTERM)
        assert other.wait(20) == -signal.SIGTERM
    assert signals.freeze_session(other.pid, 0.0) is None


def test_a_process_of_another_session_gets_no_signal(signals):
    with subprocess.Popen(["sleep", "60"], start_new_session=True) as other:
        target = signals.RunProcess(other.pid, "rank")
        assert signals.send_signal(target, signal.SIGKILL, os.getpid()) is None
        assert other.poll() is None
        assert signals.wait_for_empty_session(other.pid, 0.0) == [other.pid]
        assert other.wait() == -signal.SIGKILL
    assert signals.send_signal(target, signal.SIGKILL, other.pid) is None

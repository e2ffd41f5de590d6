"""One test for all engines: a task is killed, and the tables are those of one process."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import h5py
import pytest
from samples import random_records

from virnucpro.cli.main import main
from virnucpro.run_dir import RunDirectory

TABLES = ("predictions.tsv", "tracks/windows.tsv", "prediction_results.txt")
pytestmark = pytest.mark.timeout(340)

TASKS = 2
OUTPUTS = ["-q", "--embeddings=fp16", "--published-files"]
OUTPUTS += ["--bundle", "mini-deep"]


@pytest.fixture(scope="module")
def fasta(tmp_path_factory):
    """An input that takes long enough for a kill in the middle."""
    path = tmp_path_factory.mktemp("engines") / "reads.fa"
    path.write_text(random_records(3000, seed=39))
    return path


@pytest.fixture(scope="module")
def alone(fasta):
    """The run of one process, which has other units."""
    run = fasta.with_name("alone")
    assert main(["predict", str(fasta), "-o", str(run), "--devices", "cpu:1", *OUTPUTS]) == 0
    return run


ENGINES = [
    pytest.param("local", marks=pytest.mark.slow),
    pytest.param("slurm", marks=pytest.mark.slurm),
    pytest.param("ray", marks=pytest.mark.ray),
]
OPTIONS = {
    "local": (),
    "slurm": ("--", "--mem=1200M", "--output=/dev/null"),
    "ray": ("--", "num_cpus=1"),
}


@pytest.mark.parametrize("engine", ENGINES)
def test_a_killed_task_changes_no_table(engine, fasta, alone, tmp_path, request):
    """Ray retries the task; with the other engines, the same command again computes the rest."""
    cluster = request.getfixturevalue("cluster") if engine == "slurm" else None
    run = RunDirectory(tmp_path / "run")
    environment = cluster.environment if cluster else os.environ

    def code_of(process, printed):
        if cluster:
            return cluster.until_over(printed.rpartition("aggregate: job ")[2].strip())
        return process.returncode

    process = submit(fasta, run.root, engine, environment)
    printed = process.communicate(timeout=60)[0] if cluster else ""
    kill_task(run, 1)
    if not cluster:
        printed = process.communicate(timeout=100)[0]
    code = code_of(process, printed)
    if engine == "ray":
        assert len([attempt for attempt in run.attempts() if number_of(attempt) == 1]) == 2
    else:
        assert code == 2, printed
        kept = {path: path.stat().st_mtime_ns for _, path in run.segments()}
        process = submit(fasta, run.root, engine, environment)
        printed = process.communicate(timeout=100)[0]
        code = code_of(process, printed)
        assert {path: path.stat().st_mtime_ns for path in kept} == kept
    assert code == 0, printed
    for name in TABLES:
        assert (run.root / name).read_bytes() == (alone / name).read_bytes(), name
    with h5py.File(run.embeddings) as one, h5py.File(alone / "embeddings.h5") as other:
        assert (one["embeddings"][:] == other["embeddings"][:]).all()


def submit(fasta, run, engine, environment):
    """Start ``virnucpro submit``; return the process."""
    command = ["submit", "--engine", engine, "--tasks", TASKS, "predict", fasta, "-o", run]
    command += ["--devices", "cpu:1", "--threads", "1", *OUTPUTS, *OPTIONS[engine]]
    return subprocess.Popen(
        [sys.executable, "-m", "virnucpro", *map(str, command)],
        env={**environment, "PYTHONPATH": os.pathsep.join(sys.path)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def kill_task(run, number):
    """Kill a task with SIGKILL when it has computed a unit."""

    def computed():
        return any(attempt.segments() for attempt in run.attempts() if number_of(attempt) == number)

    wait_for(computed, f"task {number} computed nothing")
    pids = task_pids(run, number)
    assert pids, "the task ended before it could be killed"
    os.kill(min(pids), signal.SIGKILL)


def number_of(attempt):
    return int(attempt.attempt.partition(".")[0])


def wait_for(condition, complaint):
    """Return the first true answer of `condition`."""
    deadline = time.monotonic() + 90
    while time.monotonic() < deadline:
        if answer := condition():
            return answer
        time.sleep(0.02)
    raise AssertionError(complaint)


def task_pids(run, number):
    """Return the pids of a task: by its option, or by the variable of its array."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            program = (folder / "exe").readlink().name
            words = (folder / "cmdline").read_bytes().decode().split("\0")
            variables = (folder / "environ").read_bytes().decode(errors="replace").split("\0")
        except OSError:
            continue
        ours = {"predict", "--task", str(run.root)} <= {*words} and program.startswith("python")
        if ours and (f"{number}/{TASKS}" in words or f"SLURM_ARRAY_TASK_ID={number}" in variables):
            found.append(int(folder.name))
    return found

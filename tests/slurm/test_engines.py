"""One test for all engines: a task is killed, and the tables are those of one process."""

import os
import shutil
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
TASKS = 2
OUTPUTS = ["-q", "--embeddings=fp16", "--published-files"]
OUTPUTS += ["--bundle", "mini-deep"]


@pytest.fixture(scope="module")
def planned(tmp_path_factory):
    """A planned run that takes long enough for a kill in the middle."""
    folder = tmp_path_factory.mktemp("engines")
    fasta, run = folder / "reads.fa", folder / "planned"
    fasta.write_text(random_records(3000, seed=39))
    assert main(["plan", str(fasta), "-o", str(run), "--ranks", "2", *OUTPUTS]) == 0
    return run


@pytest.fixture(scope="module")
def alone(planned):
    """The run of one process, which has other units."""
    run, fasta = planned.with_name("alone"), planned.with_name("reads.fa")
    assert main(["predict", str(fasta), "-o", str(run), "--devices", "cpu:1", *OUTPUTS]) == 0
    return run


ENGINES = [
    pytest.param("local", marks=pytest.mark.slow),
    pytest.param("slurm", marks=pytest.mark.slurm),
    pytest.param("ray", marks=pytest.mark.ray),
]
OPTIONS = {
    "local": (),
    "slurm": ("--merge-options=--mem=1200M", "--", "--mem=1200M"),
    "ray": ("--", "num_cpus=1"),
}


@pytest.mark.parametrize("engine", ENGINES)
def test_a_killed_task_changes_no_table(engine, planned, alone, tmp_path, request):
    cluster = request.getfixturevalue("cluster") if engine == "slurm" else None
    run = RunDirectory(tmp_path / "run")
    shutil.copytree(planned, run.root)
    process = submit(run.root, engine, cluster.environment if cluster else os.environ)
    if cluster:
        printed = process.communicate(timeout=60)[0]
    if engine == "ray":
        kill_retried_task(run, 1, other=0)
    else:
        kill_task(run, 1)
    if cluster:
        code = cluster.until_over(printed.rpartition("merge2: job ")[2].strip())
    else:
        printed = process.communicate(timeout=100)[0]
        code = process.returncode
    assert code == 0, printed
    for name in TABLES:
        assert (run.root / name).read_bytes() == (alone / name).read_bytes(), name
    with h5py.File(run.embeddings) as one, h5py.File(alone / "embeddings.h5") as other:
        assert (one["embeddings"][:] == other["embeddings"][:]).all()


def submit(run, engine, environment):
    """Start ``virnucpro submit``; return the process."""
    work = "--work-options=--devices cpu:1 --threads 1 --copy-after 1"
    command = ["submit", run, "--engine", engine, "--tasks", TASKS, work, *OPTIONS[engine]]
    return subprocess.Popen(
        [sys.executable, "-m", "virnucpro", *map(str, command)],
        env={**environment, "PYTHONPATH": os.pathsep.join(sys.path)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def kill_retried_task(run, number, other):
    """Kill a task, and wait for its second part; the other task must not compute its units."""
    stopped = wait_for(lambda: task_pids(run, other), f"task {other} did not start")
    for pid in stopped:
        os.kill(pid, signal.SIGSTOP)
    try:
        kill_task(run, number)
        wait_for(lambda: len(part_names(run, number)) > 1, f"task {number} was not retried")
    finally:
        for pid in stopped:
            os.kill(pid, signal.SIGCONT)


def kill_task(run, number):
    """Kill a task with SIGKILL when it has computed a unit."""

    def computed():
        return any(list(run.part(name).own_segments()) for name in part_names(run, number))

    wait_for(computed, f"task {number} computed nothing")
    pids = task_pids(run, number)
    assert pids, "the task ended before it could be killed"
    os.kill(min(pids), signal.SIGKILL)


def part_names(run, number):
    return [name for name in run.part_names() if name.startswith(f"{number:04d}.")]


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
            words = (folder / "cmdline").read_bytes().decode().split("\0")
            variables = (folder / "environ").read_bytes().decode(errors="replace").split("\0")
        except OSError:
            continue
        ours = {"work", str(run.root)} <= {*words}
        if ours and (f"{number}/{TASKS}" in words or f"SLURM_ARRAY_TASK_ID={number}" in variables):
            found.append(int(folder.name))
    return found

"""One test for all engines: a task is killed, and the tables are those of one process."""

import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import h5py
import pytest

from virnucpro.cli.main import main
from virnucpro.run_dir import RunDirectory

TABLES = ("predictions.tsv", "windows.tsv", "prediction_results.txt")
TASKS = 2
OUTPUTS = ["-q", "--embeddings=fp16", "--published-files"]


@pytest.fixture(scope="module")
def planned(tmp_path_factory):
    """A planned run of many units."""
    dice = random.Random(39)
    folder = tmp_path_factory.mktemp("engines")
    fasta, run = folder / "reads.fa", folder / "planned"
    with fasta.open("w") as stream:
        for number in range(3000):
            stream.write(f">r{number}\n{''.join(dice.choices('ACGT', k=dice.randint(300, 900)))}\n")
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
    if engine == "ray":
        assert sum(name.startswith("0001.") for name in run.part_names()) > 1, "not retried"


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


def kill_task(run, number):
    """Kill a task with SIGKILL when it has computed a unit."""
    deadline = time.monotonic() + 90
    while time.monotonic() < deadline:
        names = [name for name in run.part_names() if name.startswith(f"{number:04d}.")]
        if any(list(run.part(name).own_segments()) for name in names):
            pids = task_pids(run, number)
            assert pids, "the task ended before it could be killed"
            os.kill(min(pids), signal.SIGKILL)
            return
        time.sleep(0.02)
    raise AssertionError(f"task {number} computed nothing")


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

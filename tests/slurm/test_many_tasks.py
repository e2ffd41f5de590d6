"""Row 30 of the fault matrix for many tasks: an array computes one run on a real SLURM.

All cases run concurrently, as in test_scheduler_faults.py. Each one plans a run, submits it with
``virnucpro submit`` and disturbs tasks that have computed something.
"""

import json
import shutil
import signal
import stat
import subprocess
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import h5py
import pytest
from programs import run_captured
from samples import random_records

from virnucpro.run_dir import RunDirectory

pytestmark = [pytest.mark.slurm, pytest.mark.timeout(340)]

N_RECORDS = 16_000  # some 50 s of one core
TASKS = 4
FAR = 10  # minutes
DEEP = ("--bundle", "mini-deep")
TABLES = ("predictions.tsv", "tracks/windows.tsv", "prediction_results.txt")


def kill(cluster, element):
    cluster.send(number_of(cluster, element), signal.SIGKILL)


def cancel(cluster, element):
    cluster.client("scancel", element)


def requeue(cluster, element):
    cluster.client("scontrol", "requeue", element)


def near_time_limit(cluster, element):
    """Stop the program until SLURM warns it of a nearby time limit; let it end by the warning."""
    number = number_of(cluster, element)
    cluster.stop_until_warned(element, number)
    cluster.send(number, signal.SIGCONT)


def lose_node(cluster, element):
    cluster.lose_node(number_of(cluster, element))


def number_of(cluster, element):
    """Return the number of a job or of an array's element, such as 17_3.

    The number of one element is that of the array: other commands than this one need the name.
    """
    return cluster.job(element)["JobId"]


@dataclass(frozen=True)
class Case:
    """Faults by task, and the exit codes of the disturbed tasks and of the merges.

    A task that SLURM requeues has code 0 in the end.
    """

    name: str
    faults: Mapping[int, Callable[..., None]]
    codes: Mapping[int, int]
    merges: tuple[int, ...]
    n_nodes: int
    options: tuple[str, ...] = ()


CASES = [
    Case(
        "all-at-their-time-limit-then-a-rescue-round",
        dict.fromkeys(range(TASKS), near_time_limit),
        dict.fromkeys(range(TASKS), 143),
        merges=(2, 0),
        n_nodes=2,
        options=("--cpus-per-task=1", "--mem=1200M"),
    ),
    Case(
        "requeued-node-lost-killed-cancelled",
        {0: requeue, 1: lose_node, 2: kill, 3: cancel},
        {0: 0, 1: 0, 2: -9},
        merges=(0,),
        n_nodes=TASKS + 1,
        options=("--cpus-per-task=2", "--mem=2000M"),
    ),
    Case(
        "lost-for-good",
        {1: kill, 2: kill},
        {0: 0, 1: -9, 2: -9, 3: 0},
        merges=(0,),
        n_nodes=2,
        options=("--cpus-per-task=1", "--mem=1200M", "--no-requeue"),
    ),
]


@dataclass(frozen=True)
class History:
    """Run folder and exit codes of a case."""

    run: Path
    codes: Mapping[int, int]
    merges: tuple[int, ...]
    logs: str


class CaseRunner:
    """Runs cases, each on nodes of its own; the last node runs all merges."""

    def __init__(self, cluster, planned):
        self.cluster, self.planned = cluster, planned
        *free, self.merge_node = cluster.nodes
        self.free_nodes = iter(free)
        self.nodes_of = {
            case.name: {next(self.free_nodes) for _ in range(case.n_nodes)} for case in CASES
        }

    def submit_options(self, case):
        others = ",".join(name for name in self.cluster.nodes if name not in self.nodes_of[case])
        return ("--", f"--exclude={others}", f"--time={FAR}")

    def submit(self, run, *options):
        """Submit the tasks of a run; return what the command printed."""
        return self.cluster.client(self.cluster.environment["VIRNUCPRO"], "submit", run, *options)

    def run(self, case):
        run = self.planned.with_name(case.name)
        shutil.copytree(self.planned, run)
        printed = self.submit(
            run,
            f"--tasks={TASKS}",
            f"--rescues={len(case.merges) - 1}",
            "--work-options=--devices cpu:1 --threads 1 --copy-after 2",
            f"--merge-options=--nodelist={self.merge_node} --mem=1200M",
            *self.submit_options(case.name),
            *case.options,
        )
        jobs = dict(line.split(": job ") for line in printed.splitlines() if ": job " in line)
        array, run_folder = jobs["work1"], RunDirectory(run)

        def disturb(task):
            self.until_working(run_folder, task)
            case.faults[task](self.cluster, f"{array}_{task}")

        with ThreadPoolExecutor(TASKS) as pool:
            list(pool.map(disturb, case.faults))
        codes = {task: self.cluster.until_over(f"{array}_{task}") for task in range(TASKS)}
        merges = [self.cluster.until_over(jobs["merge1"])]
        for number in range(2, len(case.merges) + 1):
            for task in range(TASKS):
                assert self.cluster.until_over(f"{jobs[f'work{number}']}_{task}") == 0
            merges.append(self.cluster.until_over(jobs[f"merge{number}"]))
        logs = "\n".join(
            f"-- {path.name}\n{path.read_text()}"
            for path in sorted(run.glob("run/logs/slurm-*.log"))
        )
        return History(run, codes, tuple(merges), logs)

    def run_step(self, script):
        """Stop a job of two nodes at its time limit; return its run folder and exit code."""
        run = self.planned.with_name("one-job")
        shutil.copytree(self.planned, run)
        nodes = ",".join(next(self.free_nodes) for _ in range(2))
        options = ("--nodes=2", f"--nodelist={nodes}", "--gpus-per-node=0", "--cpus-per-task=1")
        job = self.cluster.submit(script, run, options=(*options, "--mem=1200M", f"--time={FAR}"))
        for task in range(2):
            self.until_working(RunDirectory(run), task)
        near_time_limit(self.cluster, job)
        return run, self.cluster.until_over(job)

    def until_working(self, run, task):
        """Wait until a task has computed a unit."""

        def has_segment():
            names = [name for name in run.part_names() if name.startswith(f"{task:04d}.")]
            return any(list(run.part(name).own_segments()) for name in names)

        self.cluster.until(f"segment of task {task} in {run.root.name}", has_segment)


@pytest.fixture(scope="module")
def planned(cluster):
    """A planned run that takes long enough for faults in the middle."""
    fasta = cluster.folder / "many.fa"
    fasta.write_text(random_records(N_RECORDS, seed=38))
    run = cluster.folder / "planned"
    options = ("--ranks", 8, "--kind", "cpu", *DEEP, "-q", "--embeddings=fp16", "--published-files")
    cluster.client(cluster.environment["VIRNUCPRO"], "plan", fasta, "-o", run, *options)
    return run


@pytest.fixture(scope="module")
def runner(cluster, planned):
    return CaseRunner(cluster, planned)


@pytest.fixture(scope="module")
def histories(runner, planned):
    """Futures of the histories of all cases, and of the run of one process."""
    alone = planned.with_name("alone")
    shutil.copytree(planned, alone)
    command = [
        *(runner.cluster.environment["VIRNUCPRO"], "predict", planned.with_name("many.fa")),
        *("-o", alone, "--resume", *DEEP, "--embeddings=fp16", "--published-files"),
        *("--devices", "cpu:1", "-q"),
    ]
    with ThreadPoolExecutor(len(CASES) + 2) as pool:
        running: dict[str, Future] = {case.name: pool.submit(runner.run, case) for case in CASES}
        running["step"] = pool.submit(runner.run_step, "work-step")
        running["alone"] = pool.submit(subprocess.run, [*map(str, command)], check=True)
        yield running


@pytest.mark.parametrize("case", CASES, ids=[case.name for case in CASES])
def test_the_tables_are_those_of_one_process(histories, case):
    history, alone = histories[case.name].result(), histories["alone"].result().args[4]
    assert history.merges == case.merges, history.logs
    codes = {task: code for task, code in history.codes.items() if task in case.codes}
    assert codes == case.codes, history.logs
    assert RunDirectory(history.run).round_numbers() == list(range(1, len(case.merges) + 1))
    for name in TABLES:
        assert (history.run / name).read_bytes() == (Path(alone) / name).read_bytes(), name
    with (
        h5py.File(history.run / "embeddings.h5") as one,
        h5py.File(f"{alone}/embeddings.h5") as two,
    ):
        assert (one["embeddings"][:] == two["embeddings"][:]).all()
    status = json.loads((history.run / "run" / "run.json").read_text())
    assert status["launches"] == []


def test_all_tasks_of_a_step_stop_at_its_time_limit(histories):
    run, code = histories["step"].result()
    assert code == 143
    parts = [RunDirectory(run).part(name) for name in RunDirectory(run).part_names()]
    assert [part.root.name[:4] for part in parts] == ["0000", "0001"]
    assert [json.loads(part.status_json.read_text())["running"] for part in parts] == [False, False]


def test_no_job_or_process_remains(histories, cluster):
    for name in histories:
        histories[name].result()
    assert cluster.queue() == []
    assert cluster.processes() == []


def test_slurm_accepts_the_printed_script(runner, planned, tmp_path):
    """Each sbatch of the script is a test; its job number is that of a real, held job."""
    text = runner.submit(planned, "--print", "--tasks=1001", "--limit=7", "--", "--gres=gpu:1")
    number = runner.cluster.client("sbatch", "--parsable", "--hold", "--wrap=true")
    sbatch = tmp_path / "sbatch"
    real = shutil.which("sbatch")
    sbatch.write_text(f'#!/bin/sh\n{real} --test-only "$@" || exit\necho {number}\n')
    sbatch.chmod(sbatch.stat().st_mode | stat.S_IXUSR)
    environment = runner.cluster.environment
    environment |= {"PATH": f"{tmp_path}:{environment['PATH']}"}
    done = run_captured("sh", "-c", text, env=environment)
    runner.cluster.client("scancel", number)
    assert (done.returncode, done.stderr.count("to start at")) == (0, 4), done.stderr


@pytest.mark.parametrize(
    ("words", "code", "messages"),
    [
        (
            ["--tasks", "2500"],
            64,
            ["limit of 1,001 (MaxArraySize)", "--tasks 834 -- --gpus-per-node=3"],
        ),
        (["--tasks", "2", "--", "-p", "nowhere"], 1, ["invalid partition"]),
    ],
    ids=["too many tasks", "refused by sbatch"],
)
def test_an_impossible_submission_is_refused(runner, planned, words, code, messages):
    environment = runner.cluster.environment
    done = run_captured(environment["VIRNUCPRO"], "submit", planned, *words, env=environment)
    assert done.returncode == code
    for message in messages:
        assert message in done.stderr

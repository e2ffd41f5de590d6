"""Row 30 of the fault matrix for many tasks: an array computes one run on a real SLURM.

All cases run concurrently, as in test_scheduler_faults.py. Each one submits a run with
``virnucpro submit``, disturbs tasks that have computed something, and submits it again, with
another number of tasks, if results are missing.
"""

import signal
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

N_RECORDS = 4_000  # some 12 s of one core
TASKS = 4
FAR = 10  # minutes
OPTIONS = ("--bundle", "mini-deep", "--embeddings=fp16", "--published-files", "-q")
TABLES = ("predictions.tsv", "tracks/windows.tsv", "prediction_results.txt")


def kill(cluster, element):
    cluster.send(number_of(cluster, element), signal.SIGKILL)


def cancel(cluster, element):
    cluster.client("scancel", element)


def requeue(cluster, element):
    cluster.client("scontrol", "requeue", element)


def near_time_limit(cluster, element):
    """Stop the program until SLURM warns it of a nearby time limit; then move the limit away."""
    number = number_of(cluster, element)
    cluster.stop_until_warned(element, number)
    cluster.limit(element, FAR)
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
    """Faults by task, the exit codes of the disturbed tasks, and that of the aggregation.

    A task that SLURM or its script requeues has code 0 in the end.
    """

    name: str
    faults: Mapping[int, Callable[..., None]]
    codes: Mapping[int, int]
    aggregation: int
    n_nodes: int
    options: tuple[str, ...] = ()


CASES = [
    Case(
        "all-at-their-time-limit",
        dict.fromkeys(range(TASKS), near_time_limit),
        dict.fromkeys(range(TASKS), 0),
        aggregation=0,
        n_nodes=2,
        options=("--cpus-per-task=1", "--mem=1200M"),
    ),
    Case(
        "requeued-node-lost-killed-cancelled",
        {0: requeue, 1: lose_node, 2: kill, 3: cancel},
        {0: 0, 1: 0, 2: 128 + signal.SIGKILL},
        aggregation=2,
        n_nodes=TASKS + 1,
        options=("--cpus-per-task=2", "--mem=2000M"),
    ),
]


@dataclass(frozen=True)
class History:
    """Run folder, exit codes of tasks and aggregations, and of the aggregation during the work."""

    run: Path
    codes: Mapping[int, int]
    aggregations: tuple[int, ...]
    during: int
    n_copies: int
    logs: str


class CaseRunner:
    """Runs cases, each on nodes of its own."""

    def __init__(self, cluster, fasta):
        self.cluster, self.fasta = cluster, fasta
        free_nodes = iter(cluster.nodes)
        self.nodes_of = {
            case.name: {next(free_nodes) for _ in range(case.n_nodes)} for case in CASES
        }

    def submit(self, case, n_tasks):
        """Submit the tasks of a run; return the numbers of both jobs."""
        others = ",".join(n for n in self.cluster.nodes if n not in self.nodes_of[case.name])
        words = ("submit", f"--tasks={n_tasks}", "predict", self.fasta, "-o", self.run_of(case))
        words += (*OPTIONS, "--devices=cpu:1", "--threads=1")
        scheduler = ("--", f"--exclude={others}", f"--time={FAR}", *case.options)
        scheduler += (f"--output={self.fasta.parent}/{case.name}-%A_%a.log",)
        printed = self.cluster.client(self.cluster.environment["VIRNUCPRO"], *words, *scheduler)
        jobs = dict(line.split(": job ") for line in printed.splitlines() if ": job " in line)
        return jobs["tasks"], jobs["aggregate"]

    def run_of(self, case):
        return self.fasta.with_name(case.name)

    def run(self, case):
        run = RunDirectory(self.run_of(case))
        array, aggregation = self.submit(case, TASKS)

        def disturb(task):
            self.until_working(run, task)
            case.faults[task](self.cluster, f"{array}_{task}")

        with ThreadPoolExecutor(TASKS) as pool:
            list(pool.map(disturb, case.faults))
        command = [self.cluster.environment["VIRNUCPRO"], "aggregate", str(run.root), "-q"]
        during = subprocess.run(command, check=False).returncode
        with ThreadPoolExecutor(TASKS) as pool:  # each releases its task if it was requeued
            elements = [f"{array}_{task}" for task in range(TASKS)]
            codes = dict(enumerate(pool.map(self.cluster.until_over, elements)))
        codes_of_tables = [self.cluster.until_over(aggregation)]
        if codes_of_tables[0]:
            array, aggregation = self.submit(case, TASKS - 1)
            assert [self.cluster.until_over(f"{array}_{n}") for n in range(TASKS - 1)] == [0, 0, 0]
            codes_of_tables.append(self.cluster.until_over(aggregation))
        units = [unit for unit, _ in run.segments()]
        logs = "\n".join(
            f"-- {path.name}\n{path.read_text()}"
            for path in sorted(self.fasta.parent.glob(f"{case.name}-*.log"))
        )
        copies = len(units) - len({*units})
        return History(run.root, codes, tuple(codes_of_tables), during, copies, logs)

    def until_working(self, run, task):
        """Wait until a task has computed a unit."""

        def has_segment():
            names = (attempt for attempt in run.attempts() if attempt.attempt[:4] == f"{task:04d}")
            return any(attempt.segments() for attempt in names)

        self.cluster.until(f"segment of task {task} in {run.root.name}", has_segment)


@pytest.fixture(scope="module")
def fasta(cluster):
    """An input that takes long enough for faults in the middle."""
    path = cluster.folder / "many.fa"
    path.write_text(random_records(N_RECORDS, seed=38))
    return path


@pytest.fixture(scope="module")
def runner(cluster, fasta):
    return CaseRunner(cluster, fasta)


@pytest.fixture(scope="module")
def histories(runner, fasta):
    """Futures of the histories of all cases, and of the run of one process."""
    command = [runner.cluster.environment["VIRNUCPRO"], "predict", fasta]
    command += ["-o", fasta.with_name("alone"), *OPTIONS, "--devices", "cpu:1"]
    with ThreadPoolExecutor(len(CASES) + 1) as pool:
        running: dict[str, Future] = {case.name: pool.submit(runner.run, case) for case in CASES}
        running["alone"] = pool.submit(subprocess.run, [*map(str, command)], check=True)
        yield running


@pytest.mark.parametrize("case", CASES, ids=[case.name for case in CASES])
def test_the_tables_are_those_of_one_process(histories, case):
    history, alone = histories[case.name].result(), Path(histories["alone"].result().args[4])
    codes = {task: code for task, code in history.codes.items() if task in case.codes}
    assert codes == case.codes, history.logs
    assert history.during == 2, history.logs
    assert history.aggregations == ((2, 0) if case.aggregation else (0,)), history.logs
    assert history.n_copies == 0
    for name in TABLES:
        assert (history.run / name).read_bytes() == (alone / name).read_bytes(), name
    with (
        h5py.File(history.run / "embeddings.h5") as one,
        h5py.File(alone / "embeddings.h5") as two,
    ):
        assert (one["embeddings"][:] == two["embeddings"][:]).all()
    assert not list(history.run.rglob("*.tmp"))


def test_no_job_or_process_remains(histories, cluster):
    for name in histories:
        histories[name].result()
    assert cluster.queue() == []
    assert cluster.processes() == []


@pytest.mark.parametrize(
    ("tasks", "options", "message"),
    [(2500, [], "Invalid job array"), (2, ["-p", "nowhere"], "invalid partition")],
    ids=["too many tasks", "refused by sbatch"],
)
def test_an_impossible_submission_is_refused(cluster, fasta, tasks, options, message):
    environment = cluster.environment
    command = [environment["VIRNUCPRO"], "submit", f"--tasks={tasks}", "predict", fasta]
    done = run_captured(*command, "-o", "refused", "--", *options, env=environment)
    assert done.returncode == 1
    assert message in done.stderr

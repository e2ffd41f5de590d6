"""Row 30 of the fault matrix: actions of a scheduler on jobs, on a real SLURM.

All cases run concurrently, because most of the time is SLURM's: time limits are whole minutes, a
lost node is detected after 40 s. The tests check the recorded histories.
"""

import hashlib
import json
import signal
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from programs import segments_in
from samples import random_records

pytestmark = [pytest.mark.slurm, pytest.mark.timeout(340)]

N_RECORDS = 4000  # some 12 s of one core
ENOUGH = 5  # segments, of 64: the fault follows
FAR = 10  # minutes
CONCURRENT = 6  # cases, on two cores


@dataclass(frozen=True)
class Case:
    """A fault of a job, and the state that SLURM reports afterwards."""

    name: str
    fault: Callable[..., None]
    state: str
    options: tuple[str, ...] = ()
    n_nodes: int = 1
    resumed: bool = False  # an earlier job was cancelled
    alone: bool = False  # runs after all others


@dataclass(frozen=True)
class JobHistory:
    """Exit codes and segments of a case: at the fault, after the first merge, at the end."""

    run: Path
    last: int
    merge: int
    logs: str
    at_fault: dict[str, str] = field(default_factory=dict)
    state: str = ""
    partial: int = 0
    merged: dict[str, str] = field(default_factory=dict)


def cancel(cluster, job, run):
    cluster.client("scancel", job)


def requeue(cluster, job, run):
    cluster.client("scontrol", "requeue", job)


def preempt(cluster, job, run):
    """Submit a job of higher priority for the whole node."""
    node = cluster.job(job)["NodeList"]
    urgent = ("--partition=urgent", "--exclusive", "--output=/dev/null", f"--nodelist={node}")
    cluster.client("sbatch", *urgent, "--wrap=true")


def near_time_limit(cluster, job, run):
    """Stop the program until SLURM warns it of a nearby time limit; then move the limit away."""
    cluster.stop_until_warned(job, job)
    cluster.limit(job, FAR)
    cluster.send(job, signal.SIGCONT)


def pass_time_limit(cluster, job, run):
    """Stop the program, so that it handles no warning before its time limit."""
    cluster.send(job, signal.SIGSTOP)
    cluster.limit(job, cluster.minutes(job) + 1)


def lose_node(cluster, job, run):
    cluster.lose_node(job)


def lose_controller(cluster, job, run):
    """Kill the controller: the job continues. Cancel the job when the controller is back."""
    with cluster.without_controller(job):
        enough = len(committed(run)) + ENOUGH
        cluster.until("segment without a controller", lambda: len(committed(run)) >= enough)
        cluster.send(job, signal.SIGSTOP)  # the job must not end before the controller is back
    cancel(cluster, job, run)


def lose_controller_and_job(cluster, job, run):
    """Kill the program while there is no controller."""
    with cluster.without_controller(job):
        cluster.send(job, signal.SIGKILL)
        cluster.until("end of the job's processes", lambda: not cluster.processes(job))


def nothing(cluster, job, run):
    """Do nothing: the job's own options are the fault."""


CASES = [
    Case("time-limit-near", near_time_limit, "PENDING"),
    Case("time-limit-passed", pass_time_limit, "TIMEOUT"),
    Case("node-lost", lose_node, "PENDING", n_nodes=2),
    Case("node-lost-no-requeue", lose_node, "NODE_FAIL", ("--no-requeue",), n_nodes=2),
    Case("cancelled", cancel, "CANCELLED"),
    Case("requeued", requeue, "PENDING"),
    Case("preempted", preempt, "PENDING"),
    Case("memory-limit", nothing, "OUT_OF_MEMORY", ("--mem=50M",), resumed=True),
    Case("controller-lost", lose_controller, "CANCELLED", alone=True),
    Case("controller-and-job-lost", lose_controller_and_job, "FAILED", alone=True),
]
UNDISTURBED = Case("undisturbed", nothing, "")


def committed(run):
    """Return the digest of each segment of a run, by its name; the end of a run joins them."""
    return {name: hashlib.sha256(data).hexdigest() for name, data in segments_in(run).items()}


def units_of_last_launch(run):
    """Return how many units the last launch of a run was to compute."""
    return json.loads((run / "run" / "run.json").read_text())["launches"][-1]["n_units"]


class CaseRunner:
    """Runs cases, each on nodes of its own; one node of the cluster runs all merges."""

    def __init__(self, cluster, fasta):
        self.cluster = cluster
        self.fasta = fasta
        self.free_nodes = iter(cluster.nodes)
        self.merge_node = next(self.free_nodes)
        self.lock = threading.Lock()

    def on_nodes(self, count):
        """Return sbatch's options for `count` nodes of this case alone."""
        with self.lock:
            own = {next(self.free_nodes) for _ in range(count)}
        others = ",".join(name for name in self.cluster.nodes if name not in own)
        return (f"--exclude={others}", "--gpus-per-node=0", "--cpus-per-task=2", "--mem=2000M")

    def predict(self, run, options):
        deep = ("--bundle", "mini-deep")
        return self.cluster.submit(
            "predict", self.fasta, run, *deep, options=(f"--time={FAR}", *options)
        )

    def merge(self, run, *options):
        return self.cluster.submit(
            "aggregate", run, options=(f"--nodelist={self.merge_node}", *options)
        )

    def until_half_done(self, run):
        """Wait until the run has some segments; return them."""
        self.cluster.until(f"segment in {run.name}", lambda: len(committed(run)) >= ENOUGH)
        return committed(run)

    def undisturbed(self):
        """Run a job and its merge without a fault."""
        run = self.fasta.with_name(UNDISTURBED.name)
        job = self.predict(run, self.on_nodes(1))
        merge = self.merge(run, f"--dependency=afterany:{job}")
        codes = self.cluster.until_over(job), self.cluster.until_over(merge)
        return JobHistory(run, *codes, self.logs(job, merge))

    def run(self, case):
        """Submit a job, cause the fault, merge, resume to the end; return the history."""
        run, nodes = self.fasta.with_name(case.name), self.on_nodes(case.n_nodes)
        if case.resumed:
            self.run_partly(run, nodes)
        job = self.predict(run, (*nodes, *case.options))
        merge = self.merge(run, f"--dependency=afterany:{job}")
        at_fault = self.until_half_done(run)
        case.fault(self.cluster, job, run)
        state = self.cluster.until_out(job)
        last, partial = job, merge
        if state == "PENDING":
            partial = self.merge(run)
        partial_code = self.cluster.until_over(partial)
        merged = committed(run)
        if state != "PENDING":
            last = self.predict(run, nodes)
            merge = self.merge(run, f"--dependency=afterany:{last}")
        codes = self.cluster.until_over(last), self.cluster.until_over(merge)
        logs = self.logs(job, partial, last, merge)
        return JobHistory(run, *codes, logs, at_fault, state, partial_code, merged)

    def run_partly(self, run, nodes):
        """Run a job, and cancel it when some segments are committed."""
        job = self.predict(run, nodes)
        self.until_half_done(run)
        cancel(self.cluster, job, run)
        self.cluster.until_over(job)

    def logs(self, *jobs):
        return "\n".join(f"-- job {job}\n{self.cluster.log(job)}" for job in dict.fromkeys(jobs))


@pytest.fixture(scope="module")
def runner(cluster):
    """A runner with an input that takes long enough for a fault in the middle."""
    fasta = cluster.folder / "many.fa"
    fasta.write_text(random_records(N_RECORDS, seed=30))
    return CaseRunner(cluster, fasta)


@pytest.fixture(scope="module")
def histories(runner, request):
    """Futures of the histories of all selected cases; the cases run in the background."""
    wanted = {item.callspec.id for item in request.session.items if hasattr(item, "callspec")}
    cases = sorted((case for case in CASES if case.name in wanted), key=lambda case: case.alone)
    with ThreadPoolExecutor(CONCURRENT) as together, ThreadPoolExecutor(1) as alone:
        running: dict[str, Future[JobHistory]] = {
            UNDISTURBED.name: together.submit(runner.undisturbed)
        }
        for case in cases:
            if case.alone:
                alone.submit(wait, list(running.values()))
            threads = alone if case.alone else together
            running[case.name] = threads.submit(runner.run, case)
        yield running
        for threads in (together, alone):
            threads.shutdown(cancel_futures=True)


def test_an_undisturbed_job_and_its_merge_succeed(histories):
    history = histories[UNDISTURBED.name].result()
    assert (history.last, history.merge) == (0, 0), history.logs


@pytest.mark.parametrize("case", CASES, ids=[case.name for case in CASES])
def test_committed_segments_are_kept_and_the_others_computed(histories, case, difference_of):
    history = histories[case.name].result()
    assert (history.state, history.partial) == (case.state, 2), history.logs
    assert (history.last, history.merge) == (0, 0), history.logs
    end = committed(history.run)
    assert len(history.at_fault) >= ENOUGH
    assert {name: end.get(name) for name in history.at_fault} == history.at_fault
    assert {name: end.get(name) for name in history.merged} == history.merged
    assert units_of_last_launch(history.run) == len(end) - len(history.merged)
    assert difference_of(history.run, histories[UNDISTURBED.name].result().run) == []


def test_no_job_or_process_remains(histories, cluster):
    wait(histories.values())
    assert cluster.queue() == []
    assert cluster.processes() == []

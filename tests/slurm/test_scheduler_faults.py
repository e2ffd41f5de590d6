"""Row 30 of the fault matrix: what a scheduler does to jobs, on a real SLURM.

Every case is a story of its own, and all are played beside each other: most of the time is SLURM's
(a time limit is whole minutes, a lost node is missed after 40 s). The tests look at what was seen.
"""

import hashlib
import json
import random
import signal
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import pytest

pytestmark = [pytest.mark.slurm, pytest.mark.timeout(340)]

N_RECORDS = 4000  # some 12 s of one core
ENOUGH = 5  # segments, of 64: the run is hit after these
FAR = 10  # minutes
AT_ONCE = 6  # stories, on two cores


class Stamp(NamedTuple):
    """What tells a segment that was left alone from one that was written again."""

    inode: int
    mtime: int
    digest: str


@dataclass(frozen=True)
class Case:
    """What happens to a job, and what SLURM says of it then."""

    name: str
    fault: Callable[..., None]
    state: str
    options: tuple[str, ...] = ()
    n_nodes: int = 1
    begun: bool = False  # by an earlier job that was cancelled
    alone: bool = False  # when all others are over


@dataclass(frozen=True)
class Story:
    """What was seen: at the fault, after the merge of what there was, and at the end."""

    run: Path
    last: int
    merge: int
    logs: str
    hit: dict[Path, Stamp] = field(default_factory=dict)
    state: str = ""
    partial: int = 0
    merged: dict[Path, Stamp] = field(default_factory=dict)


def cancel(cluster, job, run):
    cluster.client("scancel", job)


def requeue(cluster, job, run):
    cluster.client("scontrol", "requeue", job)


def preempt(cluster, job, run):
    """Let a job of higher priority want all of the node."""
    node = cluster.job(job)["NodeList"]
    urgent = ("--partition=urgent", "--exclusive", "--output=/dev/null", f"--nodelist={node}")
    cluster.client("sbatch", *urgent, "--wrap=true")


def near_time_limit(cluster, job, run):
    """Let the program stand until it is warned of a limit that was far, and is far again then."""
    cluster.send(job, signal.SIGSTOP)
    cluster.limit(job, cluster.minutes(job) + 2)
    cluster.until("warning before the time limit", lambda: cluster.asked_to_stop(job))
    cluster.limit(job, FAR)
    cluster.send(job, signal.SIGCONT)


def pass_time_limit(cluster, job, run):
    """Let the program hear no warning."""
    cluster.send(job, signal.SIGSTOP)
    cluster.limit(job, cluster.minutes(job) + 1)


def lose_node(cluster, job, run):
    cluster.lose_node(job)


def go_on_without_controller(cluster, job, run):
    """Let the controller die; the job does not notice. Cancel it when the controller is back."""
    with cluster.without_controller(job):
        enough = len(committed(run)) + ENOUGH
        cluster.until("segment without a controller", lambda: len(committed(run)) >= enough)
        cluster.send(job, signal.SIGSTOP)  # or it would be done when the controller is back
    cancel(cluster, job, run)


def end_without_controller(cluster, job, run):
    """Let the program be killed while nobody is there to be told."""
    with cluster.without_controller(job):
        cluster.send(job, signal.SIGKILL)
        cluster.until("end of the job's processes", lambda: not cluster.processes(job))


def nothing(cluster, job, run):
    """The job's own options are the fault."""


CASES = [
    Case("time-limit-near", near_time_limit, "PENDING"),
    Case("time-limit-passed", pass_time_limit, "TIMEOUT"),
    Case("node-lost", lose_node, "PENDING", n_nodes=2),
    Case("node-lost-no-requeue", lose_node, "NODE_FAIL", ("--no-requeue",), n_nodes=2),
    Case("cancelled", cancel, "CANCELLED"),
    Case("requeued", requeue, "PENDING"),
    Case("preempted", preempt, "PENDING"),
    Case("memory-limit", nothing, "OUT_OF_MEMORY", ("--mem=50M",), begun=True),
    Case("controller-lost", go_on_without_controller, "CANCELLED", alone=True),
    Case("controller-and-job-lost", end_without_controller, "FAILED", alone=True),
]
UNDISTURBED = Case("undisturbed", nothing, "")


def committed(run):
    """All segments of a run."""
    stamps = {}
    for path in run.glob("shards/rank-*/unit-*.h5"):
        status = path.stat()
        digest = hashlib.sha256(path.read_bytes()).hexdigest()
        stamps[path] = Stamp(status.st_ino, status.st_mtime_ns, digest)
    return stamps


def unit_of(path):
    return int(path.stem.removeprefix("unit-"))


def newest_plan(run):
    newest = max((run / "launches").glob("????.json"))
    return set(json.loads(newest.read_text())["units"])


class Stage:
    """Where stories are played: each has nodes of its own, one of all is for merges."""

    def __init__(self, cluster, fasta):
        self.cluster = cluster
        self.fasta = fasta
        self.names = iter(cluster.nodes)
        self.merging = next(self.names)
        self.lock = threading.Lock()

    def on_nodes(self, count):
        """Sbatch's options for `count` nodes that nobody else gets."""
        with self.lock:
            mine = {next(self.names) for _ in range(count)}
        others = ",".join(name for name in self.cluster.nodes if name not in mine)
        return (f"--exclude={others}", "--gpus-per-node=0", "--cpus-per-task=2", "--mem=2000M")

    def predict(self, run, options):
        return self.cluster.submit("predict", self.fasta, run, options=(f"--time={FAR}", *options))

    def merge(self, run, *options):
        return self.cluster.submit(
            "aggregate", run, options=(f"--nodelist={self.merging}", *options)
        )

    def until_hit(self, run):
        """Wait until the run is somewhere in its middle; returns what is committed by then."""
        self.cluster.until(f"segment in {run.name}", lambda: len(committed(run)) >= ENOUGH)
        return committed(run)

    def undisturbed(self):
        """The run that nothing happens to, by job and merge."""
        run = self.fasta.with_name(UNDISTURBED.name)
        job = self.predict(run, self.on_nodes(1))
        merge = self.merge(run, f"--dependency=afterany:{job}")
        codes = self.cluster.until_over(job), self.cluster.until_over(merge)
        return Story(run, *codes, self.logs(job, merge))

    def play(self, case):
        """Submit, hit, merge what is there, go on to the end: tell what was seen."""
        run, nodes = self.fasta.with_name(case.name), self.on_nodes(case.n_nodes)
        if case.begun:
            self.begin(run, nodes)
        job = self.predict(run, (*nodes, *case.options))
        merge = self.merge(run, f"--dependency=afterany:{job}")
        hit = self.until_hit(run)
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
        return Story(run, *codes, logs, hit, state, partial_code, merged)

    def begin(self, run, nodes):
        """Leave a run half-done."""
        job = self.predict(run, nodes)
        self.until_hit(run)
        cancel(self.cluster, job, run)
        self.cluster.until_over(job)

    def logs(self, *jobs):
        return "\n".join(f"-- job {job}\n{self.cluster.log(job)}" for job in dict.fromkeys(jobs))


@pytest.fixture(scope="module")
def stage(cluster):
    """Input that takes long enough to be hit in its middle, on a cluster."""
    dice = random.Random(30)
    codons = [a + b + c for a in "ACGT" for b in "ACGT" for c in "ACGT"]
    coding = [codon for codon in codons if codon not in {"TAA", "TAG", "TGA"}]
    fasta = cluster.folder / "many.fa"
    with fasta.open("w") as stream:
        for number in range(N_RECORDS):
            stream.write(f">r{number}\n{''.join(dice.choices(coding, k=dice.randint(60, 160)))}\n")
    return Stage(cluster, fasta)


@pytest.fixture(scope="module")
def stories(stage, request):
    """All stories that this session's tests look at, going on beside them."""
    wanted = {item.callspec.id for item in request.session.items if hasattr(item, "callspec")}
    cases = sorted((case for case in CASES if case.name in wanted), key=lambda case: case.alone)
    with ThreadPoolExecutor(AT_ONCE) as together, ThreadPoolExecutor(1) as alone:
        playing: dict[str, Future[Story]] = {UNDISTURBED.name: together.submit(stage.undisturbed)}
        for case in cases:
            if case.alone:
                alone.submit(wait, list(playing.values()))
            threads = alone if case.alone else together
            playing[case.name] = threads.submit(stage.play, case)
        yield playing
        for threads in (together, alone):
            threads.shutdown(cancel_futures=True)


def test_an_undisturbed_job_and_its_merge_end_well(stories):
    story = stories[UNDISTURBED.name].result()
    assert (story.last, story.merge) == (0, 0), story.logs


@pytest.mark.parametrize("case", CASES, ids=[case.name for case in CASES])
def test_what_was_committed_is_kept_and_the_rest_is_computed(stories, case, difference_of):
    story = stories[case.name].result()
    assert (story.state, story.partial) == (case.state, 2), story.logs
    assert (story.last, story.merge) == (0, 0), story.logs
    end = committed(story.run)
    assert len(story.hit) >= ENOUGH
    assert {path: end.get(path) for path in story.hit} == story.hit
    assert {path: end.get(path) for path in story.merged} == story.merged
    assert not newest_plan(story.run) & {unit_of(path) for path in story.merged}
    assert difference_of(story.run, stories[UNDISTURBED.name].result().run) == []


def test_nothing_is_left_in_the_queue_and_on_the_nodes(stories, cluster):
    wait(stories.values())
    assert cluster.queue() == []
    assert cluster.processes() == []

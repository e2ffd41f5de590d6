"""What the engines start: the commands of tasks, then the aggregation."""

import shutil
import stat
from pathlib import Path

import pytest
from programs import run_captured

from virnucpro.cluster import slurm
from virnucpro.cluster.ray_tasks import _run_task
from virnucpro.cluster.request import LocalEngine, Request
from virnucpro.cluster.slurm import aggregation, array
from virnucpro.errors import EngineError, UsageError

SCRIPTS = Path(__file__).parents[3] / "scripts" / "slurm"
TASK_SH = Path(slurm.__file__).with_name("task.sh")
WORDS = ("predict", "a b.fa", "-o", "/data/run 1", "-q", "--no-report", "--no-lock")
ALWAYS = ("--nodes=1", "--ntasks=1", "--requeue", "--open-mode=append")


def request(*options, **keywords):
    given = {"words": WORDS, "outdir": "/data/run 1", "program": ("virnucpro",), "tasks": 8}
    return Request(**{**given, "engine_options": options, **keywords})


def test_both_jobs_of_slurm():
    wanted = request("-p", "gpu", "--gres=gpu:4", limit=3)
    assert array(wanted) == [
        *("sbatch", "--parsable", "--array=0-7%3", "--job-name=virnucpro", *ALWAYS),
        *("--signal=B:TERM@120", "-p", "gpu", "--gres=gpu:4", str(TASK_SH)),
        *("virnucpro", "predict", "--task", "auto", *WORDS[1:]),
    ]
    assert aggregation(wanted, "17") == [
        *("sbatch", "--parsable", "--dependency=afterany:17", "--job-name=virnucpro-aggregate"),
        *(*ALWAYS, "--partition=gpu"),
        "--wrap=exec virnucpro aggregate '/data/run 1' -q --no-report --no-lock",
    ]


@pytest.mark.parametrize(
    ("given", "inherited"),
    [
        (("--account=a", "--qos", "q", "-pgpu"), ("account=a", "qos=q", "partition=gpu")),
        (("--time=10", "--mem=5G", "-G", "2", "--gpus-per-node=4"), ("time=10", "mem=5G")),
        (("--export=ALL,A=1", "-D", "/here"), ("export=ALL,A=1", "chdir=/here")),
        (("--account=a", "--account=b"), ("account=b",)),
    ],
)
def test_options_that_the_aggregation_inherits(given, inherited):
    words = aggregation(request(*given), "17")
    assert {*words[words.index("--open-mode=append") + 1 : -1]} == {f"--{one}" for one in inherited}


@pytest.mark.parametrize(
    "options", [("--array=1-3",), ("-a", "1-3"), ("-d", "afterok:1"), ("--wrap=true",)]
)
def test_options_that_submit_sets_are_refused(options):
    with pytest.raises(UsageError, match=r"is set by virnucpro submit"):
        array(request(*options))


def test_the_aggregation_follows_tasks_however_they_end(tmp_path):
    log, program = tmp_path / "calls", tmp_path / "program"
    program.write_text(f'#!/bin/sh\necho "$@" >> {log}\n[ "$1" = aggregate ] && exit 2\nexit 1\n')
    wanted = request(program=("sh", str(program)), tasks=2, limit=1)
    assert LocalEngine().submit(wanted) == 2
    first, second, last = log.read_text().splitlines()
    assert first.startswith("predict --task 0/2 a b.fa")
    assert second.startswith("predict --task 1/2 a b.fa")
    assert last == "aggregate /data/run 1 -q --no-report --no-lock"


def test_options_of_a_scheduler_are_refused_on_this_machine():
    with pytest.raises(UsageError, match="no options of a scheduler"):
        LocalEngine().submit(request("--mem=5G"))


def test_ray_retries_a_task_that_fails(tmp_path):
    _run_task(("sh", "-c", "touch here; exit 2"), str(tmp_path))
    assert (tmp_path / "here").exists()
    with pytest.raises(EngineError, match=r"^a task ended with exit code 1$"):
        _run_task(("false",), str(tmp_path))


@pytest.fixture
def slurm_tools(tmp_path, monkeypatch):
    """Put programs into PATH that answer like SLURM, in a job that is an element of an array."""

    def make(state):
        for name, text in {
            "squeue": f"echo {state}",
            "scontrol": f'echo "$@" >> {tmp_path}/calls',
        }.items():
            path = tmp_path / name
            path.write_text(f"#!/bin/sh\n{text}\n")
            path.chmod(path.stat().st_mode | stat.S_IXUSR)
        monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
        monkeypatch.setenv("SLURM_ARRAY_JOB_ID", "17")
        monkeypatch.setenv("SLURM_ARRAY_TASK_ID", "3")
        return tmp_path / "calls"

    return make


@pytest.mark.parametrize(
    ("command", "state", "code", "calls"),
    [
        ("sleep 5; exit 143", "RUNNING", 143, "requeue 17_3\n"),
        ("sleep 5; exit 143", "CANCELLED", 143, ""),
        ("exit 143", "RUNNING", 143, ""),
        ("exit 2", "RUNNING", 2, ""),
        (
            "trap 'exit 143' TERM; sleep 5; kill -TERM $PPID; sleep 9 & wait",
            "RUNNING",
            143,
            "requeue 17_3\n",
        ),
    ],
    ids=["stopped", "cancelled", "in its first seconds", "partial", "warned"],
)
def test_a_stopped_task_requeues_itself(slurm_tools, command, state, code, calls):
    log = slurm_tools(state)
    run_captured("sh", TASK_SH, "sh", "-c", command, code=code)
    assert (log.read_text() if log.exists() else "") == calls


@pytest.mark.skipif(not shutil.which("shellcheck"), reason="needs shellcheck (apt install it)")
@pytest.mark.parametrize(
    "script", sorted([TASK_SH, *SCRIPTS.glob("*.sbatch")]), ids=lambda path: path.name
)
def test_the_scripts_are_shellcheck_clean(script):
    done = run_captured("shellcheck", script)
    assert (done.returncode, done.stdout) == (0, "")

"""The sbatch commands of a run, decided without SLURM."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest
from programs import run_captured

from virnucpro.cluster.request import Request
from virnucpro.cluster.slurm import (
    refuse_larger_array,
    script,
    submissions,
)
from virnucpro.errors import UsageError

SCRIPTS = Path(__file__).parents[3] / "scripts" / "slurm"
RUN = Path("/data/run 1%")
ALWAYS = ("--nodes=1", "--ntasks=1", "--requeue", "--open-mode=append")


def request(*options, **keywords):
    return Request(RUN, ("virnucpro",), engine_options=options, **{"tasks": 8, **keywords})


def test_the_jobs_of_two_rounds():
    jobs = submissions(request("-p", "gpu", "--gres=gpu:4", limit=3))
    assert [(job.name, job.after) for job in jobs] == [
        ("work1", ""),
        ("merge1", "work1"),
        ("work2", "merge1"),
        ("merge2", "work2"),
    ]
    array, merge = jobs[0], jobs[1]
    assert array.words() == [
        *("sbatch", "--parsable", "--array=0-7%3", "--job-name=virnucpro-work", *ALWAYS),
        *("--signal=B:TERM@120", "--output=/data/run 1%%/run/logs/slurm-%A_%a.log"),
        *("-p", "gpu", "--gres=gpu:4"),
        "--wrap=exec virnucpro work '/data/run 1%' --lead 90",
    ]
    assert merge.words("17") == [
        *("sbatch", "--parsable", "--dependency=afterany:17", "--job-name=virnucpro-merge"),
        *(*ALWAYS, "--output=/data/run 1%%/run/logs/slurm-%j.log", "--partition=gpu"),
        "--wrap=exec virnucpro merge '/data/run 1%' --then-rescue",
    ]
    assert (jobs[2].options, jobs[2].command) == (array.options, array.command)
    assert jobs[3].command == ("virnucpro", "merge", "/data/run 1%")


@pytest.mark.parametrize("rescues", [0, 3])
def test_the_number_of_rounds(rescues):
    jobs = submissions(request(rescues=rescues))
    assert len(jobs) == 2 * (rescues + 1)
    assert ["--then-rescue" in job.command for job in jobs[1::2]] == [True] * rescues + [False]


@pytest.mark.parametrize(
    ("given", "of_merge"),
    [
        (("--account=a", "--qos", "q", "-pgpu"), ("account=a", "qos=q", "partition=gpu")),
        (("--time=10", "--mem=5G", "-G", "2", "--gpus-per-node=4", "-c", "8"), ()),
        (
            ("--export=ALL,A=1", "-D", "/here", "-M", "c"),
            ("export=ALL,A=1", "chdir=/here", "clusters=c"),
        ),
        (("--account=a", "--account=b"), ("account=b",)),
    ],
)
def test_options_of_the_merge(given, of_merge):
    merge = submissions(request(*given, merge_options=("--mem=9G",)))[1]
    start = merge.options.index("--output=/data/run 1%%/run/logs/slurm-%j.log") + 1
    assert set(merge.options[start:]) == {*(f"--{option}" for option in of_merge), "--mem=9G"}
    assert merge.options[-1] == "--mem=9G"


@pytest.mark.parametrize(
    ("given", "lead"),
    [
        ((), 90),
        (("--signal=B:TERM@600",), 570),
        (("--signal", "B:USR1@40"), 20),
        (("--signal=B:TERM",), 30),
    ],
)
def test_the_lead_of_a_task_follows_the_signal(given, lead):
    command = submissions(request(*given))[0].command
    assert command[-2:] == ("--lead", str(lead))


@pytest.mark.parametrize(
    ("given", "seconds", "lead"),
    [
        (("--time=1:00:00",), 120, 90),
        (("--time=1-0",), 120, 90),
        (("--time=0",), 120, 90),  # no limit
        (("-t", "1"), 30, 15),
        (("-t1:30",), 45, 22),
        (("--time=0:01:40",), 50, 25),
        (("--time", "0-00:02"), 60, 30),
        (("--time=0-00:00:10",), 5, 2),
    ],
)
def test_the_signal_of_a_short_job_comes_at_half_of_its_time(given, seconds, lead):
    job = submissions(request(*given))[0]
    assert f"--signal=B:TERM@{seconds}" in job.options
    assert job.command[-2:] == ("--lead", str(lead))


@pytest.mark.parametrize("given", [("--cpus-per-task=8",), ("-c", "8"), ("-c8", "-G2")])
def test_a_task_uses_the_cpus_of_its_job(given):
    chosen = request(*given, work_options=("--threads", "4"))
    assert submissions(chosen)[0].command[-4:] == ("--threads", "8", "--threads", "4")


@pytest.mark.parametrize(
    "options", [("--array=1-3",), ("-a", "1-3"), ("-d", "afterok:1"), ("--wrap=true",)]
)
def test_options_that_submit_sets_are_refused(options):
    with pytest.raises(UsageError, match=r"is set by virnucpro submit"):
        submissions(request(*options))


def test_the_largest_array():
    text = "MaxArrayTasks           = 5\nMaxArraySize            = 1001\nMaxJobCount = 10000\n"
    refuse_larger_array(1001, text)
    refuse_larger_array(10**6, "")
    advice = r"2,500 tasks .* limit of 1,001 .* --tasks 834 -- --gpus-per-node=3"
    with pytest.raises(UsageError, match=advice):
        refuse_larger_array(2500, text)


needs_shellcheck = pytest.mark.skipif(
    not shutil.which("shellcheck"), reason="needs shellcheck (apt install it)"
)


@needs_shellcheck
@pytest.mark.parametrize("script", sorted(SCRIPTS.glob("*.sbatch")), ids=lambda path: path.name)
def test_the_scripts_for_users_are_shellcheck_clean(script):
    done = run_captured("shellcheck", script)
    assert (done.returncode, done.stdout) == (0, "")


@pytest.mark.parametrize("name", ["work", "work-step", "merge"])
def test_the_program_replaces_the_shell_and_gets_its_signals(name):
    """The signal of a time limit comes before the program's lead and some time to end."""
    text = (SCRIPTS / f"{name}.sbatch").read_text()
    last = [line for line in text.replace("\\\n", "").splitlines() if line.strip()][-1]
    assert last.startswith("exec ")
    if name != "merge":
        signal, lead = re.search(r"TERM@(\d+)", text), re.search(r"--lead (\d+)", last)
        assert int(signal[1]) - int(lead[1]) == 30


@needs_shellcheck
def test_the_script_is_shellcheck_clean(tmp_path):
    path = tmp_path / "submit.sh"
    options = ('--comment=it\'s a "run"', "--gres=gpu:2", "--constraint=[a&b]")
    path.write_text(script(submissions(request(*options)), request(*options)))
    done = run_captured("shellcheck", path)
    assert (done.returncode, done.stdout) == (0, "")


def test_the_script_submits_what_the_engine_submits(tmp_path):
    """The shell passes the same words to sbatch, and job numbers without a cluster's name."""
    fake = tmp_path / "sbatch"
    fake.write_text(
        f'#!/bin/sh\nn=$(ls {tmp_path} | grep -c call)\nprintf "%s\\0" "$@" > {tmp_path}/call$n\n'
        'echo "$n;cluster"\n'
    )
    fake.chmod(0o755)
    wanted = Request(tmp_path / "a run%", ("virnucpro",), 8, engine_options=("--comment=it's $A",))
    text = script(submissions(wanted), wanted)
    environment = {"PATH": f"{tmp_path}:/usr/bin:/bin"}
    subprocess.run(["sh", "-c", text], env=environment, check=True)
    calls = [(tmp_path / f"call{n}").read_text().split("\0")[:-1] for n in range(4)]
    jobs = submissions(wanted)
    assert calls == [job.words(str(n - 1))[1:] for n, job in enumerate(jobs)]

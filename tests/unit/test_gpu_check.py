"""Tests of scripts/gpu_check.sh: its parts and results, and a complete run on a CPU."""

import importlib
import json
import os
import sys
from pathlib import Path

import pytest
from programs import run_captured

ROOT = Path(__file__).parents[2]
MACHINE = {"device": "CPU", "torch": "2.11.0"}
PART = """
import sys, time
from pathlib import Path
from gpu_check.parts import perform
from gpu_check.recorder import Recorder

def part(setting, recorder):
    recorder.figure("row", tokens_per_s=1234.5)
    {body}

perform(part, None, Recorder("tests", Path(sys.argv[1])))
"""
TIMED_OUT_WITH_A_CHILD = """
import signal, sys
from pathlib import Path
from gpu_check import parts
from gpu_check.commands import running
from gpu_check.sizes import SIZES, Setting

signal.signal(signal.SIGTERM, parts._stop)
folder = Path(sys.argv[1])
setting = Setting("cpu", SIZES["small"], folder, folder / "log")
with running(setting, ["timeit", "-n1", "import time; time.sleep(99)"]) as process:
    (folder / "pid").write_text(str(process.pid))
    process.wait()
"""


@pytest.fixture
def module(monkeypatch):
    """Import a module of scripts/gpu_check."""
    monkeypatch.syspath_prepend(ROOT / "scripts")
    monkeypatch.setenv("PYTHONPATH", f"{ROOT}:{ROOT / 'scripts'}", prepend=os.pathsep)
    yield lambda name: importlib.import_module(f"gpu_check.{name}")
    for name in [name for name in sys.modules if name.partition(".")[0] == "gpu_check"]:
        del sys.modules[name]


@pytest.fixture
def run_part(module, tmp_path):
    """Run a part with this body in a process; return its result."""

    def run(body, seconds=60.0, program=PART):
        command = [sys.executable, "-c", program.format(body=body), str(tmp_path)]
        module("check").run_part(command, "tests", tmp_path, seconds)
        return module("results").Results.load(tmp_path).parts["tests"]

    return run


FIRST = {"row": {"tokens per s": 1234.5}}


@pytest.mark.parametrize(
    ("body", "seconds", "status", "problems", "figures"),
    [
        ("pass", 60.0, "passed", [], FIRST),
        (
            "recorder.require(False, 'apart'); recorder.figure('later', n=1)",
            60.0,
            "failed",
            ["apart"],
            FIRST | {"later": {"n": 1}},
        ),
        ("raise ValueError('broken')", 60.0, "failed", ["ValueError: broken"], FIRST),
        ("import os; os.abort()", 60.0, "failed", ["ended with exit code -6: see LOG"], FIRST),
        ("time.sleep(100)", 3.0, "timeout", ["not finished within 3 s"], FIRST),
    ],
    ids=["returns", "disagrees", "raises", "crashes", "hangs"],
)
def test_a_part_has_a_status_and_keeps_its_figures(
    run_part, tmp_path, body, seconds, status, problems, figures
):
    result, log = run_part(body, seconds), tmp_path / "gpu_check.log"
    assert result.status == status
    assert result.problems == [problem.replace("LOG", str(log)) for problem in problems]
    assert result.figures == figures
    assert result.seconds > 0
    assert ("Traceback" in log.read_text()) == ("ValueError" in str(problems))


def test_a_part_that_cannot_be_imported_fails(run_part):
    result = run_part("", program="import no_such_module")
    assert result.status == "failed"
    assert "ended with exit code 1" in result.problems[0]


@pytest.mark.slow
def test_a_timeout_ends_the_processes_that_the_part_started(run_part, tmp_path):
    result = run_part("", seconds=3.0, program=TIMED_OUT_WITH_A_CHILD)
    assert result.status == "timeout"
    with pytest.raises(ProcessLookupError):
        os.kill(int((tmp_path / "pid").read_text()), 0)


@pytest.fixture
def checked(module, monkeypatch, tmp_path):
    """Run parts with given results; return the exit code and the names of the parts that ran."""
    check = module("check")
    results = module("results")

    def run(statuses, seconds=100.0, sizes="small"):
        ran = []

        def run_part(command, name, out, seconds):
            ran.append(name)
            known = results.Results.load(out)
            known.parts[name] = results.PartResult("not run", figures={name: {"rate": 2.0}})
            known.save(out)
            check.end_part(out, name, 1.5, statuses[name])

        monkeypatch.setattr(check, "run_part", run_part)
        code = check.Check(tmp_path, tmp_path, MACHINE, sizes, seconds).run(list(statuses))
        return code, ran

    return run


def test_parts_that_have_passed_are_not_repeated(checked):
    assert checked({"tests": "passed", "parity": "failed", "memory": "timeout"}) == (
        1,
        ["tests", "parity", "memory"],
    )
    assert checked({"tests": "passed", "parity": "passed"}) == (0, ["parity"])
    assert checked({"tests": "passed", "killed": "timeout"}) == (1, ["killed"])


def test_results_of_other_sizes_or_devices_are_ignored(checked):
    assert checked({"tests": "passed"}) == (0, ["tests"])
    assert checked({"tests": "passed"}, sizes="full") == (0, ["tests"])


def test_a_part_is_not_started_without_time_left(checked, tmp_path):
    assert checked({"tests": "passed"}, seconds=5.0) == (1, [])
    part = json.loads((tmp_path / "gpu_check.json").read_text())["parts"]["tests"]
    assert part["status"] == "not run"
    assert part["problems"] == ["no time is left: repeat the command"]


def test_results_are_written_as_json_and_as_tables(checked, tmp_path):
    checked({"killed": "passed", "tests": "passed"})
    content = json.loads((tmp_path / "gpu_check.json").read_text())
    assert content["machine"] == {**MACHINE, "sizes": "small"}
    assert list(content["parts"]) == ["tests", "killed"]
    lines = (tmp_path / "gpu_check.md").read_text().splitlines()
    assert "device CPU, torch 2.11.0, sizes small" in lines
    assert "| tests | passed | 1.5 | 0 |" in lines
    table = lines.index("### killed")
    assert lines[table + 2 : table + 5] == ["|  | rate |", "|---|---|", "| killed | 2 |"]


def test_figures_are_rounded_for_people(module):
    text = module("results").text
    shown = [text(value) for value in (0.9999871, 0.123456, 81234.5, 16384, None, True, "a|b")]
    assert shown == ["0.999987", "0.1235", "81,234", "16,384", "", "True", "a\\|b"]


def test_only_wheels_of_missing_packages_are_installed(module, tmp_path):
    for name in ("numpy-1.0-py3-none-any.whl", "not_there_at_all-1.0-py3-none-any.whl"):
        (tmp_path / name).touch()
    is_installed = module("missing_wheels").is_installed
    assert [is_installed(path) for path in sorted(tmp_path.iterdir())] == [False, True]


def gpu_check(*arguments, timeout):
    return run_captured(
        "bash",
        ROOT / "scripts/gpu_check.sh",
        *arguments,
        env={**os.environ, "PYTHON": sys.executable, "WHEELS": "/nowhere"},
        timeout=timeout,
    )


@pytest.mark.parametrize("arguments", [(), ("out", "no-such-part")])
def test_wrong_usage_is_refused(arguments):
    done = gpu_check(*arguments, timeout=60)
    assert done.returncode == 2
    assert "PART" in done.stderr


@pytest.mark.scripts
@pytest.mark.timeout(1800)
def test_the_whole_check_runs_on_a_cpu(tmp_path):
    done = gpu_check(tmp_path / "out", "--small", "--seconds", 1600, timeout=1700)
    assert done.returncode == 0, done.stdout + done.stderr
    parts = json.loads((tmp_path / "out/gpu_check.json").read_text())["parts"]
    assert {name: part["status"] for name, part in parts.items()} == dict.fromkeys(
        ("tests", "parity", "throughput", "predict", "two_ranks", "memory", "killed"), "passed"
    )
    assert parts["two_ranks"]["figures"]["two workers"]["differences"] == 0
    assert parts["memory"]["figures"]["memory"]["quarantined"] == 1
    assert parts["killed"]["figures"]["killed"]["attempts"] == 2
    again = gpu_check(tmp_path / "out", "--small", timeout=60)
    assert again.returncode == 0
    assert again.stdout.count("passed in an earlier run") == len(parts)

"""Row 31: printing never stops work. Streams are closed, full, without a reader or a terminal."""

import json
import os
import pty
import re
import subprocess
from pathlib import Path

import pytest
from cases import slow
from programs import VIRNUCPRO, run_captured

STDERR_CLOSED, STDERR_FULL = "2>&-", "2>/dev/full"
ALL_CLOSED, ALL_FULL = "<&- >&- 2>&-", ">/dev/full 2>&1"


def redirected(command, redirection):
    """Run a command under a shell that redirects its streams; return the exit code."""
    return subprocess.run(
        ["sh", "-c", f'exec "$@" {redirection}', "sh", *map(str, command)], check=False, timeout=100
    ).returncode


def read_lines(command, n_lines):
    """Run a command whose output is read up to `n_lines` lines; return them and the exit code."""
    with subprocess.Popen(
        list(map(str, command)), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        lines = [process.stdout.readline() for _ in range(n_lines)]
        process.stdout.close()
        return lines, process.wait(timeout=100)


@pytest.fixture
def predict(few_fasta, tmp_path):
    return [*VIRNUCPRO, "predict", few_fasta, "-o", tmp_path / "run", "--devices", "cpu:1"]


@pytest.fixture
def launch(few_fasta, tmp_path):
    folder = tmp_path / "in"
    folder.mkdir()
    for name in ("a.fa", "b.fa"):
        (folder / name).symlink_to(few_fasta)
    (folder / "c.fa").write_text("no sequences\n")
    options = ("--devices", "cpu:1", "-o", tmp_path / "out")
    return [*VIRNUCPRO, "launch", "--input-dir", folder, *options]


def lost_output(run):
    """Return the reasons in the coordinator's log why progress could not be printed."""
    log = (run / "run" / "logs" / "coordinator.log").read_text()
    return re.findall(r"progress cannot be printed \((.*)\); the run continues\n", log)


def launched(folder):
    """Return the exit code and the statuses of a launch's files."""
    content = json.loads((folder / "launch.json").read_text())
    return content["exit_code"], [one["status"] for one in content["files"]]


@pytest.mark.parametrize(
    "redirection", [ALL_CLOSED, slow(STDERR_FULL), slow(STDERR_CLOSED), slow(ALL_FULL)]
)
def test_a_run_survives_broken_streams(redirection, predict, undisturbed, tmp_path, difference_of):
    assert redirected(predict, redirection) == 0
    assert difference_of(undisturbed, tmp_path / "run") == []
    # A stream that is closed at the start is replaced by a read-only /dev/null.
    reason = "No space left on device" if "/dev/full" in redirection else "closed"
    assert lost_output(tmp_path / "run") == [f"standard error: {reason}"]


@pytest.mark.parametrize("n_lines", [1, slow(3)])
def test_a_run_survives_a_lost_reader(n_lines, predict, undisturbed, tmp_path, difference_of):
    lines, code = read_lines(predict, n_lines)
    assert all(line.startswith("[virnucpro] ") for line in lines)
    assert code == 0
    assert difference_of(undisturbed, tmp_path / "run") == []
    assert lost_output(tmp_path / "run") == ["standard error: Broken pipe"]


@pytest.mark.parametrize("command", ["launch", slow("predict")])
def test_work_survives_a_terminal_that_goes_away(command, request, tmp_path):
    ours, theirs = pty.openpty()
    with subprocess.Popen(
        list(map(str, request.getfixturevalue(command))),
        stdout=theirs,
        stderr=theirs,
        env=os.environ | {"TERM": "xterm"},
    ) as process:
        os.close(theirs)
        os.read(ours, 10)
        os.close(ours)
        code = process.wait(timeout=100)
    assert code == {"predict": 0, "launch": 2}[command]
    assert list(tmp_path.rglob("predictions.tsv"))


@pytest.mark.slow
@pytest.mark.parametrize("redirection", [ALL_FULL, ALL_CLOSED, STDERR_CLOSED, STDERR_FULL])
def test_a_launch_survives_broken_streams(redirection, launch, tmp_path):
    assert redirected(launch, redirection) == 2
    assert launched(tmp_path / "out") == (2, ["done", "done", "failed"])


@pytest.mark.slow
@pytest.mark.parametrize("n_lines", [1, 2])
def test_a_launch_survives_a_lost_reader(n_lines, launch, tmp_path):
    _, code = read_lines(launch, n_lines)
    assert code == 2
    assert launched(tmp_path / "out") == (2, ["done", "done", "failed"])


def printing_to(stream, *words):
    """Run the program with a standard output."""
    pipes = {"stdout": stream, "stderr": subprocess.PIPE}
    return run_captured(*VIRNUCPRO, *words, capture_output=False, **pipes)


@pytest.mark.parametrize(
    "command", [slow(["--help"]), slow(["bundle", "list"]), ["status", "{run}", "--json"]]
)
def test_data_without_a_reader_are_no_error(command, undisturbed):
    readable, writable = os.pipe()
    os.close(readable)
    done = printing_to(writable, *(word.format(run=undisturbed) for word in command))
    os.close(writable)
    assert (done.returncode, done.stderr) == (0, "")


def test_data_that_do_not_fit_on_the_disk_are_an_error(undisturbed):
    with Path("/dev/full").open("w") as full:
        done = printing_to(full, "status", undisturbed, "--json")
    assert done.returncode == 1
    assert "No space left on device: 'standard output'" in done.stderr
    assert "free disk space" in done.stderr
    assert "Traceback" not in done.stderr

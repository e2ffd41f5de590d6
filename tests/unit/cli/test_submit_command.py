"""``virnucpro submit``: what it refuses, and the commands that it starts."""

import stat
from pathlib import Path

import pytest

from virnucpro.cli.main import main


@pytest.fixture(scope="module")
def fasta(tmp_path_factory):
    path = tmp_path_factory.mktemp("input") / "reads.fa"
    path.write_text(f">a\n{'ACGTTGCA' * 40}\n>b\n{'GGCATTACG' * 50}\n")
    return path


@pytest.fixture
def sbatch(tmp_path, monkeypatch):
    """Make the text of a shell script the program sbatch; without one there is no sbatch."""

    def make(text=""):
        if text:
            path = tmp_path / "sbatch"
            path.write_text(f"#!/bin/sh\n{text}\n")
            path.chmod(path.stat().st_mode | stat.S_IXUSR)
        monkeypatch.setenv("PATH", f"{tmp_path}:/bin" if text else str(tmp_path))

    return make


@pytest.mark.parametrize(
    ("options", "arguments", "message"),
    [
        ([], ["--preset", "nosuch"], "argument --preset: invalid choice: 'nosuch'"),
        ([], ["--devics", "cpu"], "unknown option --devics: did you mean --devices?"),
        ([], ["--task", "0/2"], "virnucpro submit numbers the tasks"),
        ([], ["--force"], "--force would delete the work of other tasks"),
        ([], ["--", "--array=1-3"], "--array is set by virnucpro submit"),
        (["--engine", "local"], ["--", "--time=5"], "the engine local has no options"),
        (["--engine", "ray"], ["--", "num_gpus"], "'num_gpus' is not NAME=VALUE"),
        (["--limit", "0"], [], "argument --limit: '0' is not a whole number of at least 1"),
        ([], [], "sbatch is not installed here"),
    ],
)
def test_what_is_refused(fasta, tmp_path, sbatch, options, arguments, message, called):
    sbatch()
    run = tmp_path / "run"
    words = ["submit", "--tasks", "2", *options, "predict", fasta, "-o", run, *arguments]
    assert message in called(*words, code=64).stderr
    assert not run.exists()


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["predict", "{fasta}", "-o", "run"], 64, "arguments are required: --tasks"),
        (["--tasks", "2", "launch"], 64, "unknown command 'launch'"),
        (["--tasks", "2", "predict", "absent.fa", "-o", "run"], 1, "absent.fa: no such file"),
    ],
)
def test_what_is_missing(fasta, words, code, message, called):
    assert (
        message in called("submit", *(word.format(fasta=fasta) for word in words), code=code).stderr
    )


def test_both_commands_are_shown_with_the_numbers_of_their_jobs(fasta, sbatch, capsys):
    sbatch("echo '17;cluster'")
    words = ["embed", str(fasta), "-o", "run", "-e", "mini/nucleotide", "--no-lock"]
    assert main(["submit", "--tasks=3", *words, "--", "-p", "gpu"]) == 0
    tasks, number, tables, other = capsys.readouterr().out.splitlines()
    assert "--array=0-2 " in tasks
    assert " -p gpu " in tasks
    assert tasks.endswith(f" embed --task auto {fasta} -o run -e mini/nucleotide --no-lock")
    assert number == "tasks: job 17"
    assert tables.startswith("sbatch --parsable --dependency=afterany:17 ")
    assert " --partition=gpu " in tables
    assert tables.endswith(" aggregate run --no-lock'")
    assert other == "aggregate: job 17"


def test_a_refusal_names_the_job_that_was_submitted(fasta, sbatch, called):
    sbatch("case $* in *afterany*) echo no tables here >&2; exit 1;; esac; echo 17")
    shown = called("submit", "--tasks", "2", "predict", fasta, "-o", "run", code=1).stderr
    assert "sbatch failed with exit code 1: no tables here" in shown
    assert "scancel 17" in shown


def test_a_submission_again_computes_what_is_missing(fasta, tmp_path):
    run = tmp_path / "run"
    local = ["submit", "--tasks", "2", "--engine", "local", "--limit", "1"]
    words = [*local, "predict", str(fasta), "-o", str(run), "--devices", "cpu:1", "-q"]
    assert main(words) == 0
    assert main(["verify", str(run)]) == 0
    (segment,) = Path(run).glob("run/tasks/*/shards/*/*.h5")
    (run / "predictions.tsv").unlink()
    segment.write_bytes(b"")
    assert main(words) == 0
    assert (run / "predictions.tsv").read_text().count("\n") == 3
    assert len([*run.glob("run/tasks/*")]) == 2

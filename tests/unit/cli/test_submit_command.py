"""``virnucpro submit``: what it refuses, and input files that it plans first."""

import shutil
import stat

import pytest

from virnucpro.cli.main import main


@pytest.fixture(scope="module")
def fasta(tmp_path_factory):
    path = tmp_path_factory.mktemp("input") / "reads.fa"
    path.write_text(f">a\n{'ACGTTGCA' * 40}\n>b\n{'GGCATTACG' * 50}\n")
    return path


@pytest.fixture(scope="module")
def planned(fasta):
    run = fasta.with_name("planned")
    assert main(["plan", str(fasta), "-o", str(run), "--ranks", "3", "-q"]) == 0
    return run


@pytest.fixture
def slurm(tmp_path, monkeypatch):
    """Put programs into PATH that answer like SLURM."""

    def make(**programs):
        for name, text in programs.items():
            path = tmp_path / name
            path.write_text(f"#!/bin/sh\n{text}\n")
            path.chmod(path.stat().st_mode | stat.S_IXUSR)
        monkeypatch.setenv("PATH", f"{tmp_path}:/bin" if programs else str(tmp_path))

    return make


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--preset", "sensitive"], "--preset needs input files and -o"),
        (["--print", "--engine", "local"], "--print shows the commands of the engine slurm"),
        (["--print", "--", "--array=1-3"], "--array is set by virnucpro submit"),
        (["--engine", "local", "--", "--time=5"], "the engine local has no options"),
        ([], "scontrol is not installed here"),
    ],
)
def test_what_is_refused(planned, options, message, slurm, called):
    slurm()
    assert message in called("submit", planned, *options, code=64).stderr


def test_files_without_a_run_are_refused(fasta, tmp_path, capsys, called):
    assert "input files and -o RUN" in called("submit", fasta, code=64).stderr
    assert main(["submit", str(fasta), "-o", str(tmp_path / "run"), "--print"]) == 64
    assert "run virnucpro plan first" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()
    assert "is not a run of virnucpro" in called("submit", tmp_path, code=1).stderr


def test_the_commands_are_shown_with_the_numbers_of_their_jobs(planned, slurm, capsys):
    slurm(scontrol="echo 'MaxArraySize = 4'", sbatch="echo '17;cluster'")
    assert main(["submit", str(planned), "--rescues", "0", "--no-lock", "--", "-p", "gpu"]) == 0
    work, number, merge, other = capsys.readouterr().out.splitlines()
    assert "--array=0-2 " in work
    assert " -p gpu " in work
    assert number == "work1: job 17"
    assert merge.startswith("sbatch --parsable --dependency=afterany:17 ")
    assert " --partition=gpu " in merge
    assert merge.endswith(" --no-lock'")
    assert other == "merge1: job 17"
    for options in ([], ["--print"]):
        assert main(["submit", str(planned), "--tasks", "5", *options]) == 64
        assert "limit of 4 (MaxArraySize)" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--tasks", "5"], "limit of 4 (MaxArraySize)"),
        (["--ranks", "5"], "limit of 4 (MaxArraySize)"),
        (["--", "--array=1-3"], "--array is set by virnucpro submit"),
        (["--merge-options=--wrap=a"], "--wrap is set by virnucpro submit"),
        (["--engine", "local", "--", "--time=1"], "the engine local has no options"),
        (["--engine", "local", "--merge-options=--mem=5G"], "the engine local has no options"),
        (["--engine", "ray", "--", "num_gpus"], "'num_gpus' is not NAME=VALUE"),
    ],
)
def test_what_is_refused_before_the_plan(fasta, tmp_path, slurm, options, message, called):
    slurm(scontrol="echo 'MaxArraySize = 4'")
    run = tmp_path / "run"
    size = [] if "--ranks" in options else ["--ranks", "3"]
    assert message in called("submit", fasta, "-o", run, "-q", *size, *options, code=64).stderr
    assert not run.exists()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("--nosuch 3", "unrecognized arguments: --nosuch 3"),
        ("--threads x", "argument -t/--threads"),
        ("--help", "unrecognized arguments: --help"),
    ],
)
def test_options_of_the_tasks_are_checked_before_the_plan(fasta, tmp_path, words, message, called):
    run = tmp_path / "run"
    options = ("--engine", "local", f"--work-options={words}")
    printed = called("submit", fasta, "-o", run, *options, code=64).stderr
    assert f"--work-options: {message}" in printed
    assert "see virnucpro work --help" in printed
    assert not run.exists()


def test_commands_are_printed_without_slurm(planned, slurm, called):
    slurm()
    assert "--array=0-2" in called("submit", planned, "--print", code=0).stdout


@pytest.mark.parametrize("command", ["plan", "rescue"])
def test_the_number_of_workers_has_a_limit(planned, tmp_path, command, called):
    outdir = ["-o", tmp_path / "run"] if command == "plan" else []
    done = called(command, planned, "--ranks", "5000000", *outdir)
    assert "give at most 65,536 workers" in done.stderr


def test_a_refusal_names_the_jobs_that_were_submitted(planned, slurm, called):
    refusal = "case $* in *afterany*) echo no merges here >&2; exit 1;; esac; echo 17"
    slurm(scontrol="true", sbatch=refusal)
    shown = called("submit", planned, code=1).stderr
    assert "sbatch failed with exit code 1: no merges here" in shown
    assert "scancel 17" in shown


LOCAL = ["--engine", "local", "--tasks", "1", "--work-options=--devices cpu:1", "-q"]


def submitted(fasta, run):
    assert main(["submit", str(fasta), "-o", str(run), "--ranks", "1", *LOCAL]) == 0
    assert main(["verify", str(run)]) == 0
    assert (run / "predictions.tsv").read_text().count("\n") == 3


def test_input_files_are_planned_and_computed(fasta, tmp_path, called):
    run = tmp_path / "run"
    submitted(fasta, run)
    assert f"{run}: complete: nothing to submit" in called("submit", run, code=0).stderr


@pytest.mark.slow
def test_a_submission_computes_what_is_missing(fasta, tmp_path):
    run = tmp_path / "run"
    submitted(fasta, run)
    before = sorted((run / "run" / "parts").iterdir())
    (run / "predictions.tsv").unlink()
    assert main(["submit", str(run), *LOCAL]) == 0
    assert sorted((run / "run" / "parts").iterdir()) == before
    assert (run / "predictions.tsv").exists()
    segment = next(run.glob("run/parts/*/run/shards/*/*.h5"))
    segment.write_bytes(b"")
    assert main(["rescue", str(run), "-q"]) == 0
    assert main(["submit", str(run), *LOCAL]) == 0
    assert len(list((run / "run" / "parts").iterdir())) == len(before) + 1


def test_an_existing_run_is_submitted_as_such(fasta, planned, tmp_path, capsys, called):
    for command in (["plan"], ["submit", "--engine", "local"]):
        text = called(*command, fasta, "-o", planned, "-q", code=1).stderr
        assert f"To compute it: virnucpro submit {planned}." in text
        assert "--resume" not in text
    killed = tmp_path / "run"  # the planner was killed before it wrote the round
    shutil.copytree(planned, killed)
    shutil.rmtree(killed / "run" / "rounds")
    assert main(["plan", str(fasta), "-o", str(killed), "-q"]) == 1
    assert f"virnucpro rescue {killed}, then virnucpro submit" in capsys.readouterr().err
    assert main(["submit", str(killed), "--engine", "local"]) == 1
    assert f"virnucpro rescue {killed}" in capsys.readouterr().err
    assert main(["rescue", str(killed), "-q"]) == 0
    assert f"work {killed}" in called("submit", killed, "--print", code=0).stdout

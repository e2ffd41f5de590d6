"""Commands on folders with a run, with other files, and without a run."""

import errno
import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from programs import take_apart
from samples import copy_of, files_in

from virnucpro.cli.main import main
from virnucpro.run.manifest import read_manifest, write_manifest
from virnucpro.run_dir import RunDirectory

pytestmark = pytest.mark.usefixtures("one_process")
GENE = "ATGGCCAAAGGTCCC" * 60


@pytest.fixture(scope="module")
def gene(tmp_path_factory):
    path = tmp_path_factory.mktemp("input") / "gene.fa"
    path.write_text(f">gene\n{GENE}\n")
    return str(path)


@pytest.fixture(scope="module")
def finished(tmp_path_factory, gene):
    folder = tmp_path_factory.mktemp("finished") / "run"
    assert main(["predict", gene, "-o", str(folder), "-q", "--embeddings=fp16"]) == 0
    RunDirectory(folder).logs.mkdir()
    return take_apart(folder).root


run = copy_of("finished")


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["absent.fa"], 1),
        (["{gene}", "--devices", "cpu:0"], 64),
        (["{gene}", "--devices", "99"], 1),
        (["{gene}", "--window", "2"], 64),
        (["{gene}", "--genetic-code", "99"], 64),
        (["{gene}", "--bundle", "absent"], 64),
        (["{gene}", "{gene}", "absent.fa"], 1),
    ],
)
def test_force_keeps_the_old_run_until_the_new_one_can_begin(run, gene, arguments, code, called):
    before = files_in(run)
    filled = [one.replace("{gene}", gene) for one in arguments]
    assert "error" in called("predict", *filled, "-o", run, "--force", code=code).stderr
    assert files_in(run) == before


@pytest.mark.parametrize("option", [[], ["--force"], ["--resume"]])
@pytest.mark.parametrize(
    "name", ["missing.tsv", "run/logs/rank-0000.log", "run/shards/mine.fa", "tracks/mine.fa"]
)
def test_an_input_with_the_name_of_a_run_s_own_file_is_refused(run, name, option, capsys):
    path = run / name
    path.write_text(f">gene\n{GENE}\n")
    link = run.parent / "link.fa"
    link.symlink_to(path)
    before = files_in(run)
    for given in (path, link):
        assert main(["predict", str(given), "-o", str(run), *option]) == 64
        assert f"the input {given} has the name of a file of the run" in capsys.readouterr().err
    assert files_in(run) == before


def test_an_input_in_an_empty_run_folder_is_refused(tmp_path, called):
    path = tmp_path / "run" / "missing.tsv"
    path.parent.mkdir()
    path.write_text(f">gene\n{GENE}\n")
    assert path.name in called("predict", path, "-o", path.parent, code=64).stderr
    assert path.read_text() == f">gene\n{GENE}\n"


@pytest.mark.parametrize(
    ("command", "told"),
    [
        ("predict {gene} -o {loop}", "the link points to itself: remove it, or give another path"),
        ("predict {gene} -o {loop}/run", "the link points to itself"),
        ("predict {loop}/x.fa -o {run}", "x.fa: the file cannot be opened"),
        ("launch --input-dir {inputs} -o {loop}", "no folder can be created here"),
    ],
)
def test_a_link_that_points_to_itself_in_a_path(command, told, gene, tmp_path, called):
    loop = tmp_path / "loop"
    loop.symlink_to("loop")
    named = {"gene": gene, "inputs": Path(gene).parent, "loop": loop, "run": tmp_path / "run"}
    assert told in called(*command.format(**named).split(), code=1).stderr
    assert [*tmp_path.iterdir()] == [loop]


@pytest.mark.parametrize("step", ["created", "write_outputs"])
def test_ctrl_c_after_force_is_told_how_the_work_is_kept(step, run, gene, monkeypatch, called):
    """While the old run is still there, no advice names --resume, which would keep that run."""
    words = ["predict", gene, "-o", run, "-q", "--min-length", "200"]
    with monkeypatch.context() as patch:
        patch.setattr(
            f"virnucpro.compute.predict.{step}", lambda *_, **__: signal.raise_signal(signal.SIGINT)
        )
        told = called(*words, "--force", code=130).stderr
    if step == "created":
        assert told.endswith("Nothing new was computed. Rerun the command.\n")
    else:
        assert told.endswith("Rerun the command with --resume instead of --force.\n")
        called(*words, "--resume", code=0)


FILES = "predictions.tsv missing.tsv embeddings.h5 tracks/windows.tsv run/run.json run/run.lock"
FILES += " run/status.json run/index/columns.bin run/logs/coordinator.log run/logs/rank-0000.log"


@pytest.mark.parametrize(
    ("name", "make"),
    [*((name, os.mkfifo) for name in FILES.split()), ("predictions.tsv", Path.mkdir)],
)
def test_a_pipe_or_folder_in_the_place_of_a_file_is_refused(run, gene, name, make, called):
    path = run / name
    path.parent.mkdir(exist_ok=True)
    path.unlink(missing_ok=True)
    make(path)
    for command in (
        ["status", run],
        ["verify", run],
        ["verify", run, "--repair"],
        ["aggregate", run],
        ["predict", gene, "-o", run, "--resume"],
        ["predict", gene, "-o", run, "--force"],
    ):
        assert f"{path} is not a regular file. Remove it" in called(*command, code=1).stderr


@pytest.mark.parametrize(
    "choice",
    [["--extract", "ambiguous,viral"], ["--compress"], ["--preset", "sensitive"]],
)
def test_a_run_with_an_unwritten_choice_is_not_complete(run, gene, choice, monkeypatch, called):
    def interrupted(*_arguments, **_options):
        raise OSError(errno.ENOSPC, "no space left")

    resume = ["predict", gene, "-o", str(run), "--resume", "-q"]
    with monkeypatch.context() as patched:
        patched.setattr("virnucpro.run.outputs.write_texts", interrupted)
        assert main([*resume, *choice]) == 1
    assert "to write the tables: virnucpro aggregate" in called("status", run, code=2).stdout
    assert main(resume) == 0
    assert main(["status", str(run)]) == 0


def test_force_replaces_the_run(run, gene, tmp_path):
    (run / "run" / "index" / ".nfs0001").touch()
    other = tmp_path / "other.fa"
    other.write_text(f">other\n{GENE}\n>short\nA\n")
    assert main(["predict", str(other), "-o", str(run), "--force", "-q"]) == 0
    rows = (run / "predictions.tsv").read_text().splitlines()
    assert [row.split("\t")[0] for row in rows] == ["seq_name", "other", "short"]
    assert not (run / "run" / "index.next").exists()


def test_force_in_the_current_folder(run, gene, tmp_path, monkeypatch, called):
    """``-o .`` replaces a run there, and nothing among other files."""
    monkeypatch.chdir(run)
    before = RunDirectory(run).run_json.read_bytes()
    called("predict", gene, "-o", ".", "--force", "--embeddings=fp16", code=0)
    assert RunDirectory(run).run_json.read_bytes() != before
    called("verify", ".", code=0)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "notes.txt").write_text("notes")
    refused = called("predict", gene, "-o", ".", "--force", code=1)
    assert ". is not empty" in refused.stderr
    assert (tmp_path / "notes.txt").read_text() == "notes"


def test_verify_advises_no_force_that_a_damaged_run_json_refuses(run, gene, called):
    (run / "run" / "run.json").write_text("{")
    assert "--force" not in called("verify", run, code=1).stdout
    assert main(["predict", gene, "-o", str(run), "--force"]) == 1


@pytest.mark.parametrize(
    "name",
    [
        *("run/logs/x.log", "run/index/notes", "run/thesis.txt", "run/run.json", "run"),
        *("tracks/drums.wav", "tracks", "predictions.tsv", "run.json", "thesis.txt"),
    ],
)
@pytest.mark.parametrize("option", [[], ["--force"], ["--resume"]])
def test_other_files_are_kept_also_with_the_names_of_a_run(gene, tmp_path, capsys, name, option):
    precious = tmp_path / "project" / name
    precious.parent.mkdir(parents=True)
    precious.write_text("{}")
    assert main(["predict", gene, "-o", str(tmp_path / "project"), *option]) == 1
    assert name.split("/", maxsplit=1)[0] in capsys.readouterr().err
    assert files_in(tmp_path / "project") == {name: b"{}"}


@pytest.mark.parametrize("option", [[], ["--force"], ["--resume"]])
def test_a_run_that_lost_its_manifest_is_not_cleared(run, gene, option):
    (run / "run" / "run.json").unlink()
    before = files_in(run)
    assert main(["predict", gene, "-o", str(run), *option]) == 1
    assert files_in(run) == before


def test_a_run_killed_before_its_index_was_complete_is_resumed(run, gene, finished):
    (run / "run" / "index").rename(run / "run" / "index.next")
    shutil.rmtree(run / "run" / "shards")
    (run / "predictions.tsv").unlink()
    assert main(["predict", gene, "-o", str(run), "--resume", "-q"]) == 0
    assert (run / "predictions.tsv").read_bytes() == (finished / "predictions.tsv").read_bytes()


def test_all_changes_of_a_resume_are_written_at_once(run, gene, monkeypatch):
    """A resume that ends after the first write of run.json leaves the run with all changes."""
    changes = ["--threshold", "0.6", "--extract", "viral,ambiguous"]
    os.utime(gene)  # changes the stamp, too

    def write_and_fail(*arguments):
        write_manifest(*arguments)
        raise OSError(errno.ENOSPC, "disk full")

    monkeypatch.setattr("virnucpro.run.run.write_manifest", write_and_fail)
    assert main(["predict", gene, "-o", str(run), "--resume", "-q", *changes]) == 1
    found = read_manifest(RunDirectory(run))
    assert found.calls["threshold"] == 0.6
    assert [*found.extracts["calls"]] == ["viral", "ambiguous"]
    assert found.input_stamps[0].mtime_ns == Path(gene).stat().st_mtime_ns


def test_the_index_of_another_run_is_refused(run, gene, tmp_path, called):
    other = tmp_path / "other.fa"
    other.write_text(f">other\n{GENE}A\n")
    assert main(["predict", str(other), "-o", str(tmp_path / "two"), "-q"]) == 0
    shutil.rmtree(run / "run" / "index")
    shutil.copytree(tmp_path / "two" / "run" / "index", run / "run" / "index")
    assert "another run" in called("predict", gene, "-o", run, "--resume", code=1).stderr


def test_a_closed_standard_input_is_an_error(tmp_path):
    done = subprocess.run(
        f"exec {sys.executable} -m virnucpro predict - -o {tmp_path / 'run'} <&-",
        shell=True,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert "standard input is closed" in done.stderr
    assert "Traceback" not in done.stderr


def status(folder, capsys):
    code = main(["status", str(folder), "--json"])
    content = json.loads(capsys.readouterr().out)
    assert code == (2 if content["state"] in {"computed", "incomplete"} else 0)
    return content


def test_status_distinguishes_complete_computed_and_incomplete_runs(run, capsys):
    assert status(run, capsys)["state"] == "complete"
    for name in ("predictions.tsv", "embeddings.h5"):
        (run / name).rename(run / "aside.tsv")
        assert status(run, capsys)["state"] == "computed"
        (run / "aside.tsv").rename(run / name)
    (run / "missing.tsv").touch()
    assert status(run, capsys)["state"] == "computed"
    (segment,) = run.glob("run/shards/*/unit-*.h5")
    segment.write_bytes(b"")
    assert status(run, capsys)["state"] == "incomplete"


@pytest.mark.parametrize("text", ["{", '{"ranks": []}', '{"ranks": {"0": 5}}', ""])
def test_status_works_without_a_status_file(run, capsys, text):
    (run / "run" / "status.json").write_text(text)
    assert status(run, capsys)["ranks"]["0"]["state"] == "succeeded"  # of run.json


def test_status_reports_ranks_that_died_with_their_parent(run, capsys):
    rank = status(run, capsys)["ranks"]["0"] | {"state": "running", "exit": None, "seconds": 1}
    content = {"running": True, "host": "", "ranks": {"0": rank}}
    (run / "run" / "status.json").write_text(json.dumps(content))
    assert status(run, capsys)["ranks"]["0"]["state"] == "ended with the main process"


def test_status_reports_a_run_that_reads_its_input(tmp_path, capsys):
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    folder = tmp_path / "run"
    command = [sys.executable, "-m", "virnucpro", "predict", fifo, "-o", folder]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        with fifo.open("w") as stream:
            stream.write(f">gene\n{GENE}\n")
            stream.flush()
            assert "reading" in process.stderr.readline()
            assert status(folder, capsys)["state"] == "reading"
        process.communicate(timeout=60)
    assert process.returncode == 0
    assert status(folder, capsys)["state"] == "complete"


@pytest.mark.parametrize("command", ["aggregate", "rescore"])
def test_the_temporary_table_of_a_killed_process_is_removed(run, command):
    left = run / "windows.tsv.123-abcdef12.tmp"
    left.touch()
    assert main([command, str(run), "-q"]) == 0
    assert not left.exists()


def test_frames_removes_the_temporary_files_of_a_killed_process(gene, tmp_path):
    left = tmp_path / "gene_chunked500.fa.123-abcdef12.tmp"
    left.touch()
    assert main(["frames", gene, "-o", str(tmp_path)]) == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "gene_chunked500.fa",
        "gene_identified_nucleotide.fa",
        "gene_identified_protein.faa",
    ]


@pytest.mark.parametrize("option", [[], ["--force"], ["--resume"]])
def test_a_run_folder_of_an_older_version_is_refused_in_one_sentence(run, gene, option, called):
    """Before version 9, run.json was on top."""
    text = (run / "run" / "run.json").read_text()
    shutil.rmtree(run / "run")
    (run / "run.json").write_text(text)
    before = files_in(run)
    printed = called("predict", gene, "-o", run, *option, code=1).stderr
    assert f"{run} is not empty" in printed
    for command in ("status", "report"):
        assert f"{run} is not a run of virnucpro" in called(command, run, code=1).stderr
    assert files_in(run) == before

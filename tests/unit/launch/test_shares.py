"""A launch by several processes: one joined table, whatever order they run in."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from cases import slow
from samples import read_table

from virnucpro.cli.main import main
from virnucpro.launch import balancer
from virnucpro.launch.results import FileResult
from virnucpro.launch.table import FileShare, LaunchTable, join_tables
from virnucpro.launch_dir import FileStatus, read_tables

DATA = Path(__file__).parents[2] / "data"
CONTENTS = {"a": "ok", "b": "partial", "c": "broken", "d": "ok", "e": "again", "f": "number"}
TIMES = {"seconds", "worker"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("in")
    for name, text in CONTENTS.items():
        (folder / name).write_text(text)
    return folder


def command(folder, out, *options):
    worker = f"{DATA / 'launch_workers.py'}:Obedient"
    return [
        *("launch", "--input-dir", str(folder), "-o", str(out), "--devices", "cpu:1", "-q"),
        *("--worker", worker, *options),
    ]


def start(folder, out, task):
    words = [sys.executable, "-m", "virnucpro", *command(folder, out, "--task", task)]
    path = os.pathsep.join(sys.path)
    return subprocess.Popen(words, env={**os.environ, "PYTHONPATH": path})


def rows(out):
    found = read_table(out / "launch.tsv")
    return [{key: row[key] for key in row if key not in TIMES} for row in found]


@pytest.fixture(scope="module")
def alone(folder, tmp_path_factory):
    """Table of a launch by one process."""
    out = tmp_path_factory.mktemp("alone")
    assert main(command(folder, out)) == 2
    return rows(out)


def test_processes_at_once_write_the_table_of_one_process(folder, alone, tmp_path, called):
    tasks = [start(folder, tmp_path, f"{number}/2") for number in range(2)]
    codes = [task.wait(60) for task in tasks]
    assert rows(tmp_path) == alone
    content = json.loads((tmp_path / "launch.json").read_text())
    assert (content["exit_code"], content["tasks"], content["completed"]) == (2, 2, 6)
    assert codes == [2, 2]
    shown = called("status", tmp_path, code=2).stdout
    assert "launch, incomplete: 6 files: 3 done, 1 skipped, 1 partial, 1 failed" in shown


def test_an_element_more_than_files_has_nothing_to_do(folder, alone, tmp_path, called, monkeypatch):
    for name, number in {"MIN": "1", "MAX": "7", "STEP": "1", "ID": "7"}.items():
        monkeypatch.setenv(f"SLURM_ARRAY_TASK_{name}", number)
    assert main(command(folder, tmp_path, "--task", "auto")) == 0
    shown = json.loads(called("status", "--json", tmp_path, code=2).stdout)
    assert (shown["state"], shown["left"]) == ("stopped", 6)
    for number in "123":
        monkeypatch.setenv("SLURM_ARRAY_TASK_ID", number)
        main(command(folder, tmp_path, "--task", "auto"))
    for number in (3, 4, 5):
        main(command(folder, tmp_path, "--task", f"{number}/7"))
    assert rows(tmp_path) == alone


def table_of(tmp_path, task, files):
    own = FileShare(task, 2).folder(tmp_path)
    own.mkdir(parents=True, exist_ok=True)
    counts = balancer.LoadBalancer([0])
    counts.results.extend(FileResult(str(file), FileStatus.DONE) for file in files)
    return LaunchTable(tmp_path, own, files, {}, counts)


def test_a_task_that_ends_during_a_join_is_joined(tmp_path, monkeypatch):
    """Task 1 ends and joins while task 0 has read the tables and not yet written its joined one."""
    files = [tmp_path / "a", tmp_path / "b"]
    first, second = (table_of(tmp_path, task, [file]) for task, file in enumerate(files))
    second.begin()
    first.end()
    begin = LaunchTable.begin

    def late(table):
        monkeypatch.undo()
        second.end()
        join_tables(tmp_path, tmp_path, files, {}, 2)
        begin(table)

    monkeypatch.setattr(LaunchTable, "begin", late)
    join_tables(tmp_path, tmp_path, files, {}, 2)
    assert json.loads((tmp_path / "launch.json").read_text())["exit_code"] == 0
    assert [row["status"] for row in rows(tmp_path)] == ["done", "done"]
    assert read_tables(tmp_path, 3) == {}


def test_a_file_in_no_share_is_left(tmp_path):
    for task in range(2):
        table_of(tmp_path, task, [tmp_path / str(task)]).end()
    files = [tmp_path / name for name in ("0", "1", "new")]
    join_tables(tmp_path, tmp_path, files, {}, 2)
    content = json.loads((tmp_path / "launch.json").read_text())
    assert [content[name] for name in ("exit_code", "completed", "failed")] == [2, 2, 0]
    assert rows(tmp_path)[2]["status"] == "left"
    assert "added during the launch" in rows(tmp_path)[2]["error"]


def test_a_named_pipe_in_place_of_a_table_is_not_opened(tmp_path, capsys):
    table_of(tmp_path, 0, [tmp_path / "a"]).end()
    own = FileShare(1, 2).folder(tmp_path)
    own.mkdir()
    os.mkfifo(own / "launch.json")
    assert not join_tables(tmp_path, tmp_path, [tmp_path / "a"], {}, 2)
    assert "launch.json is not a regular file: remove it and rerun" in capsys.readouterr().err


@pytest.mark.parametrize("damaged", ["{", slow("{}"), slow("[]")])
def test_a_damaged_table_of_another_task_masks_no_error_and_stops_no_work(
    damaged, folder, tmp_path, capsys, called
):
    other = FileShare(1, 2).folder(tmp_path)
    other.mkdir(parents=True)
    (other / "launch.json").write_text(damaged)
    failing = [*command(folder, tmp_path, "--task", "0/2"), "--set", "fail_on=all"]
    printed = called(*failing, code=1).stderr
    assert "fallen off the bus" in printed.splitlines()[-1]
    assert "rerun task 1/2 of the launch" in printed
    assert main(command(folder, tmp_path, "--task", "0/2")) == 2
    own = json.loads((FileShare(0, 2).folder(tmp_path) / "launch.json").read_text())
    assert {one["status"] for one in own["files"]} == {"done", "partial"} or own["exit_code"] == 2
    assert "rerun task 1/2 of the launch" in capsys.readouterr().err
    assert main(command(folder, tmp_path, "--task", "1/2")) == 2
    assert json.loads((tmp_path / "launch.json").read_text())["completed"] == 6

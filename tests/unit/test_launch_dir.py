"""The one reader of launch.json: for joined tables, `status` and `report`."""

import json
import os

import pytest

from virnucpro.errors import StoreError
from virnucpro.launch.balancer import LoadBalancer
from virnucpro.launch.table import FileShare, LaunchTable, join_tables
from virnucpro.launch_dir import FileStatus, read_table

TABLE = {"exit_code": 0, "seconds": 1.5, "troubles": [], "files": []}
FILE = {
    "file": "/in/a",
    "status": "done",
    "gpu": 0,
    "seconds": 2,
    "attempts": 1,
    "result": {},
    "error": "",
    "details": "",
}
DAMAGED = {
    "no JSON": "{",
    "too deep": "[" * 100_000,
    "a list": "[]",
    "no values": "{}",
    "a number of tasks": json.dumps({**TABLE, "tasks": "2"}),
    "too many tasks": json.dumps({**TABLE, "tasks": 10**30}),
    "no list of files": json.dumps({**TABLE, "files": 3}),
    "a file without values": json.dumps({**TABLE, "files": [3]}),
    "a status": json.dumps({**TABLE, "files": [{**FILE, "status": "gone"}]}),
    "seconds": json.dumps({**TABLE, "files": [{**FILE, "seconds": "2"}]}),
}


def test_a_table_is_read_as_it_was_written(tmp_path):
    LaunchTable(tmp_path, tmp_path, [tmp_path / "a"], {"input_dir": "/"}, LoadBalancer([0])).end()
    [file] = read_table(tmp_path / "launch.json")["files"]
    assert (file["file"], file["status"]) == (str(tmp_path / "a"), FileStatus.LEFT)
    (tmp_path / "launch.json").write_text(json.dumps({**TABLE, "files": [FILE]}))
    assert read_table(tmp_path / "launch.json")["files"] == [FILE]


def test_a_table_of_a_later_version_is_joined(tmp_path):
    path = FileShare(0, 1).folder(tmp_path) / "launch.json"
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps({**TABLE, "new": 1, "files": [{**FILE, "new": 1}]}))
    assert join_tables(tmp_path, tmp_path, [tmp_path / "a"], {}, 1)
    assert read_table(tmp_path / "launch.json")["exit_code"] is not None


@pytest.mark.parametrize("damaged", DAMAGED.values(), ids=DAMAGED)
def test_a_damaged_table_of_a_task_is_named(damaged, tmp_path, capsys):
    path = FileShare(1, 2).folder(tmp_path) / "launch.json"
    path.parent.mkdir(parents=True)
    path.write_text(damaged)
    with pytest.raises(StoreError, match=r"is damaged \("):
        read_table(path)
    assert not join_tables(tmp_path, tmp_path, [tmp_path / "a"], {}, 2)
    assert f"{path} is damaged" in capsys.readouterr().err


@pytest.mark.parametrize("command", ["status", "report"])
def test_a_named_pipe_in_place_of_a_tasks_table_is_not_opened(command, tmp_path, called):
    (tmp_path / "launch.json").write_text(json.dumps({**TABLE, "input_dir": "/in", "tasks": 2}))
    path = FileShare(1, 2).folder(tmp_path) / "launch.json"
    path.parent.mkdir(parents=True)
    os.mkfifo(path)
    assert f"{path} is not a regular file" in called(command, tmp_path, code=1).stderr

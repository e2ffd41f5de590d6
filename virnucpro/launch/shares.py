"""A launch by several processes: each one has its share of the files and a table of its own.

::

    OUT/launch.tasks/0003-of-0008/    table, lock and logs of task 3 of 8
    OUT/launch.tsv, OUT/launch.json   joined table of all tasks

No process waits for another one, and none writes another one's table. Every task joins the tables
when it begins and when it ends.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from virnucpro.errors import UsageError
from virnucpro.launch.balancer import LoadBalancer
from virnucpro.launch.results import FileResult, FileStatus
from virnucpro.launch.table import LaunchTable
from virnucpro.launch_dir import JSON_NAME, task_folder

__all__ = ["FileShare", "join_tables", "read_tables"]

Tables = Mapping[int, Mapping[str, Any]]
"""Content of each task's launch.json, by number of the task."""


@dataclass(frozen=True, slots=True)
class FileShare:
    """Share of one of several processes in the files of a launch.

    Attributes
    ----------
    number
        Number of the process, from 0.
    count
        Number of processes.
    """

    number: int
    count: int

    def folder(self, target: Path) -> Path:
        """Return the folder of the share's table, lock and logs in the output folder `target`."""
        return task_folder(target, self.number, self.count)


def read_tables(target: Path, count: int) -> Tables:
    """Return the tables of all tasks that have begun.

    Raises
    ------
    UsageError
        If a table is damaged.
    OSError
        If a table cannot be read.
    """
    found = {}
    for number in range(count):
        path = FileShare(number, count).folder(target) / JSON_NAME
        try:
            found[number] = json.loads(path.read_bytes())
        except FileNotFoundError:
            continue
        except ValueError as error:
            raise UsageError(
                f"{path} is damaged ({error}): rerun task {number}/{count} of the launch."
            ) from error
    return found


def join_tables(
    source: Path, target: Path, files: Sequence[Path], facts: Mapping[str, Any], count: int
) -> None:
    """Write the joined table of all tasks; its exit code is null until all tasks have ended.

    Of the tasks that end at the same time, each one joins again if another one has ended after it
    had read the tables. So the last joined table has the results of all.

    Parameters
    ----------
    source, target
        Folders of the input files and of the results.
    files
        All input files, in the order of the table.
    facts
        Constant entries of the joined ``launch.json``.
    count
        Number of tasks.
    """
    tables = read_tables(target, count)
    while True:
        _write(
            LaunchTable(source, target, files, {**facts, "tasks": count}, LoadBalancer(())), tables
        )
        before, tables = tables, read_tables(target, count)
        if _ended(tables) <= _ended(before):
            return


def _ended(tables: Tables) -> set[int]:
    return {number for number, table in tables.items() if table["exit_code"] is not None}


def _write(joined: LaunchTable, tables: Tables) -> None:
    balancer = joined.balancer
    for table in tables.values():
        balancer.add(map(_result, table["files"]), table["troubles"], table["seconds"])
    if len(_ended(tables)) < joined.facts["tasks"]:
        joined.begin()
        joined.update()
        return
    known = {one.file for one in balancer.results}
    missing = [str(file) for file in joined.files if str(file) not in known]
    reason = "no task had this file: it was changed or added during the launch"
    balancer.add(FileResult(file, FileStatus.LEFT, error=reason) for file in missing)
    joined.end()


def _result(plain: Mapping[str, Any]) -> FileResult:
    fields = {name: value for name, value in plain.items() if name not in {"gpu", "status"}}
    return FileResult(status=FileStatus(plain["status"]), gpu_id=plain["gpu"], **fields)

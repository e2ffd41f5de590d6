"""Result table of a launch: ``launch.tsv`` for people, ``launch.json`` for programs.

If several processes divide the files, each one has a table of its own::

    OUT/launch.tasks/0003-of-0008/    table, lock and logs of task 3 of 8
    OUT/launch.tsv, OUT/launch.json   joined table of all tasks

No process waits for another one, and none writes another one's table. Every task joins the tables
when it begins and when it ends.
"""

import json
import re
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, fields
from functools import partial
from pathlib import Path
from typing import Any, Final

from virnucpro.console import counted, printable, say, shortened
from virnucpro.durable import write_file
from virnucpro.errors import StoreError
from virnucpro.folder_lock import is_held
from virnucpro.launch.balancer import LoadBalancer
from virnucpro.launch.results import FileResult, cell, encoded, file_cell
from virnucpro.launch_dir import (
    JSON_NAME,
    LOCK_NAME,
    TSV_NAME,
    FileStatus,
    read_table,
    read_tables,
    task_folder,
)

_INTERVAL_S = 1.0
"""Minimum seconds between two updates of the table on disk."""

_SHARE: Final = 20
"""Minimum seconds between two updates, per second that the last update took."""

_MAX_WIDTH = 60
"""Maximum number of characters of a table cell on a terminal."""

_SCALARS = (str, int, float, bool)
_OWN_COLUMNS = ("file", "status", "seconds", "worker", "attempts", "error")


@dataclass(frozen=True, slots=True)
class LaunchReport:
    """Results of a finished launch.

    Attributes
    ----------
    results
        Results of all files, sorted by name.
    rows
        Lines of the result table, as lists of cells; the first line is the header.
    exit_code
        0: all files are done. 1: no file has a result. 2: some files failed, are partial or were
        not processed, or the table could not be written.
    """

    results: Sequence[FileResult]
    rows: Sequence[Sequence[str]]
    exit_code: int


@dataclass(slots=True)
class LaunchTable:
    """Writes the table of a running launch to disk and updates it.

    Parameters
    ----------
    source, target
        Folders of the input files and of the results.
    files
        All input files, in the order of the table.
    facts
        Constant entries of ``launch.json``, such as the input folder.
    balancer
        Object that collects the results.
    is_written
        False if `end` could not write the table.
    """

    source: Path
    target: Path
    files: Sequence[Path]
    facts: Mapping[str, Any]
    balancer: LoadBalancer
    is_written: bool = field(default=True, init=False)
    _shown: int = field(default=-1, init=False)
    _next_update: float = field(default=0.0, init=False)

    def begin(self) -> None:
        """Write the first version of the table; an earlier table is replaced.

        Raises
        ------
        OSError
            If the table cannot be written; the launch must not start after this error.
        """
        self._write(self._results("not done yet"), None, lasting=True)

    def update(self) -> None:
        """Write a changed table, at most once per `_INTERVAL_S`; ignore write errors."""
        n_items, started = (
            len(self.balancer.results) + len(self.balancer.troubles),
            time.monotonic(),
        )
        if started < self._next_update or n_items == self._shown:
            return
        self._shown = n_items
        with suppress(OSError):
            self._write(self._results("not done yet"), None, lasting=False)
        ended = time.monotonic()
        self._next_update = ended + max(_INTERVAL_S, _SHARE * (ended - started))

    def end(self) -> LaunchReport:
        """Write the final table and return the report.

        If the write fails, print the error; the exit code of the report is then not 0.
        """
        error = self.balancer.error
        reason = "" if error is None else f": {str(error).partition(chr(10))[0]}"
        results = self._results(f"the launch ended before this file was done{reason}")
        exit_code = self.balancer.get_exit_code() if self.files else 0
        try:
            rows = self._write(results, exit_code, lasting=True)
        except OSError as raised:
            notes = "; ".join(getattr(raised, "__notes__", ()))
            say(
                f"error: the table of this launch could not be written: {raised}; {notes}. Free "
                "disk space or make the folder writable. The results of the files are unaffected."
            )
            rows, exit_code = table_rows(results, self.source), exit_code or 2
            self.is_written = False
        return LaunchReport(results, rows, exit_code)

    def _results(self, reason_if_left: str) -> list[FileResult]:
        known = {outcome.file: outcome for outcome in self.balancer.results}
        return [
            known.get(str(file), FileResult(str(file), FileStatus.LEFT, error=reason_if_left))
            for file in self.files
        ]

    def _write(
        self, results: Sequence[FileResult], exit_code: int | None, *, lasting: bool
    ) -> Sequence[Sequence[str]]:
        """Write ``launch.tsv`` and ``launch.json`` atomically; return the lines of the table.

        If `lasting` is false, a power failure may destroy the written files.
        """
        rows = table_rows(results, self.source)
        content = {
            **self.facts,
            "exit_code": exit_code,
            **self.balancer.get_summary_stats(),
            "troubles": self.balancer.troubles,
        }
        # A line for each file: `json.dumps` with an indent takes ten times as long.
        head = json.dumps(content, indent=2, default=str).removesuffix("\n}")
        files = ",\n    ".join(json.dumps(_plain(outcome), default=str) for outcome in results)
        text = f'{head},\n  "files": [\n    {files}\n  ]\n}}\n'
        with write_file(self.target / TSV_NAME, lasting=lasting) as stream:
            stream.writelines(b"\t".join(map(encoded, row)) + b"\n" for row in rows)
        with write_file(self.target / JSON_NAME, lasting=lasting) as stream:
            stream.write(text.encode())
        return rows


def table_rows(results: Sequence[FileResult], input_dir: Path) -> list[list[str]]:
    """Return the lines of the result table, as lists of cells; the first line is the header.

    The table has one line per file. A field of the workers' results has a column if it contains a
    text, number or bool, in the order of the first result that has the field. File names are
    relative to `input_dir`. Missing values are ``NA``.
    """
    scalars = {
        name
        for file in results
        for name, value in file.result.items()
        if isinstance(value, _SCALARS)
    }
    # A result may have None, which keeps the place of its column.
    names = dict.fromkeys(name for file in results for name in file.result)
    fields = [name for name in names if name in scalars]
    header = ["file", *_column_names(fields), *_OWN_COLUMNS[1:]]
    return [header, *(_row(outcome, fields, input_dir) for outcome in results)]


def _column_names(fields: Sequence[str]) -> list[str]:
    """Return a unique column name for each field of the workers' results.

    If the name of a field is already a column name, the prefix ``result.`` is added.
    """
    names: list[str] = []
    for column in fields:
        name = cell(column)
        while name in (*_OWN_COLUMNS, *names):
            name = f"result.{name}"
        names.append(name)
    return names


def _row(outcome: FileResult, fields: Sequence[str], input_dir: Path) -> list[str]:
    values = [outcome.result.get(name) for name in fields]
    return [
        file_cell(outcome.file, input_dir),
        *(cell(value if isinstance(value, _SCALARS) else None) for value in values),
        outcome.status.value,
        "NA" if outcome.seconds is None else f"{outcome.seconds:.2f}",
        cell(outcome.gpu_id),
        str(outcome.attempts),
        cell(outcome.error or None),
    ]


def readable(rows: Sequence[Sequence[str]], left_out: str = "") -> list[list[str]]:
    """Return a copy of the table for the terminal: without empty columns, with shortened cells.

    Columns whose names match the regular expression `left_out` are left out, too.
    """
    short = partial(shortened, longest=_MAX_WIDTH)
    columns = [
        [short(name), *map(short, cells)]
        for name, *cells in zip(*rows, strict=True)
        if any(cell != "NA" for cell in cells) and not (left_out and re.fullmatch(left_out, name))
    ]
    return [list(row) for row in zip(*columns, strict=True)]


def _plain(outcome: FileResult) -> dict[str, Any]:
    plain = {own.name: getattr(outcome, own.name) for own in fields(outcome)}
    plain["gpu"] = plain.pop("gpu_id")
    plain["seconds"] = None if outcome.seconds is None else round(outcome.seconds, 3)
    return plain


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


def join_tables(
    source: Path, target: Path, files: Sequence[Path], facts: Mapping[str, Any], count: int
) -> bool:
    """Write the joined table of all tasks; its exit code is null until all tasks have ended.

    If a task's table is damaged, or the joined table cannot be written, print the error, and return
    false: the work of this task and its own table are unaffected.

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
    try:
        tables = read_tables(target, count)
        while True:
            table = LaunchTable(source, target, files, {**facts, "tasks": count}, LoadBalancer(()))
            _write(table, tables)
            before, tables = tables, read_tables(target, count)
            if _ended(tables) <= _ended(before):
                return table.is_written
    except (StoreError, OSError) as error:
        say(f"error: the tables of all tasks could not be joined: {error}")
        return False


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
    known = {outcome.file for outcome in balancer.results}
    missing = [str(file) for file in joined.files if str(file) not in known]
    reason = "no task had this file: it was changed or added during the launch"
    balancer.add(FileResult(file, FileStatus.LEFT, error=reason) for file in missing)
    joined.end()


def _result(plain: Mapping[str, Any]) -> FileResult:
    values = {"gpu_id": plain["gpu"], **plain}
    return FileResult(**{own.name: values[own.name] for own in fields(FileResult)})


@dataclass(frozen=True, slots=True)
class LaunchProgress:
    """Current state of a launch.

    Attributes
    ----------
    state
        ``running``; ``complete``: all files are done; ``incomplete``: the launch ended, but some
        files are not done; ``stopped``: the launch was interrupted.
    files
        Number of files by status.
    failures
        Name, status and error of each file that failed or is partial.
    """

    state: str
    files: dict[str, int]
    failures: tuple[str, ...]

    def as_dict(self) -> dict[str, Any]:
        """Return the state of the launch, the files by status and the failures, as a dict."""
        return {
            "command": "launch",
            "state": self.state,
            "files": sum(self.files.values()),
            **self.files,
            "failures": list(self.failures),
        }

    def as_text(self) -> str:
        """Return one line with the state of the launch, and one line per failed or partial file."""
        counts = ", ".join(f"{number:,} {status}" for status, number in self.files.items())
        lines = [f"launch, {self.state}: {counted(sum(self.files.values()), 'file')}: {counts}"]
        return "\n".join(map(printable, (*lines, *self.failures)))


def read_launch(folder: Path) -> LaunchProgress:
    """Return the state of the launch in a folder, read from its tables and lock files.

    Raises
    ------
    StoreError
        If a table is damaged.
    OSError
        If a table cannot be read.
    """
    count: int = read_table(folder / JSON_NAME).get("tasks") or 0
    # First the lock, then the table: a launch writes its exit code before it releases the lock.
    folders = [task_folder(folder, number, count) for number in range(count)] or [folder]
    running = any(is_held(path / LOCK_NAME) for path in folders)
    tables = read_tables(folder, count).values()
    content = read_table(folder / JSON_NAME)
    entries = {entry["file"]: entry for table in (content, *tables) for entry in table["files"]}
    files = [(entry["file"], entry["status"], entry["error"]) for entry in entries.values()]
    exit_code = content["exit_code"]
    ended = "stopped" if exit_code is None else "complete" if exit_code == 0 else "incomplete"
    counts = Counter(status for _, status, _ in files)
    return LaunchProgress(
        "running" if running else ended,
        {status.value: counts[status] for status in FileStatus if counts[status]},
        tuple(
            f"{file}: {status}: {error}"
            for file, status, error in files
            if status in {FileStatus.FAILED, FileStatus.TIMED_OUT, FileStatus.PARTIAL}
        ),
    )

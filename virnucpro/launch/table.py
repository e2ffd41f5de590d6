"""Result table of a launch: ``launch.tsv`` for people, ``launch.json`` for programs.

If several processes divide the files, each one has a table of its own::

    OUT/launch.tasks/0003-of-0008/    table, lock and logs of task 3 of 8
    OUT/launch.tsv, OUT/launch.json   joined table of all tasks

The outputs of all files are merged beside it::

    OUT/launch.predictions.tsv      rows of all files, in the order of launch.tsv; the column `file`
                                    has the names of launch.tsv
    OUT/launch.viruses.fasta[.gz]   viruses and proviruses of all FASTA files, in the same order;
                                    their ids are ``sample|id``
    OUT/launch.viruses.fastq[.gz]   those of all FASTQ files

No process waits for another one, and none writes another one's table. Every task joins the tables
when it begins and when it ends.
"""

import gzip
import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field, fields
from functools import partial
from pathlib import Path
from typing import IO, Any, Final

from virnucpro.console import as_word, counted, printable, sample_names, say, shortened
from virnucpro.durable import write_file
from virnucpro.errors import StoreError
from virnucpro.folder_lock import is_held
from virnucpro.launch.balancer import LoadBalancer
from virnucpro.launch.results import FileResult, Throttle, cell, encoded, file_cell
from virnucpro.launch_dir import (
    JSON_NAME,
    LOCK_NAME,
    MERGED_NAMES,
    TSV_NAME,
    FileStatus,
    read_table,
    read_tables,
    task_folder,
)

_INTERVAL_S = 1.0
"""Minimum seconds between two updates of the table on disk."""

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
    merged
        Names of the merged outputs of all files in the output folder.
    """

    results: Sequence[FileResult]
    rows: Sequence[Sequence[str]]
    exit_code: int
    merged: Sequence[str] = ()


OUTPUTS_KEY: Final = "outputs"
"""Key of a worker's result: paths of the outputs of a file, by name."""

_FILE: Final = b"file"
_FILE_FIELD: Final = re.compile(rb" file=[^ \n]*")
_GZIP_LEVEL: Final = 6


class MergedOutputs:
    """Writes the merged outputs of the files that are done, atomically.

    Parameters
    ----------
    source, folder
        Input folder and output folder of the launch.
    """

    def __init__(self, source: Path, folder: Path) -> None:
        self._source = source
        self._folder = folder
        self._merged = 0
        self._throttle = Throttle()

    @property
    def written(self) -> list[str]:
        """Names of the merged files that exist."""
        return [name for name in MERGED_NAMES.values() if (self._folder / name).is_file()]

    def update(self, results: Sequence[FileResult]) -> None:
        """Write the merged outputs if there are new results; ignore write errors.

        The time between two updates grows with their duration.
        """
        answered = sum(outcome.status.answered for outcome in results)
        if answered == self._merged or not self._throttle.due:
            return
        with self._throttle.timed(), suppress(OSError):
            self.write(results)
        self._merged = answered

    def write(self, results: Sequence[FileResult]) -> None:
        """Write the merged outputs of all results that have some; remove the others.

        Raises
        ------
        OSError
            If a file cannot be read or written, or is not a file in the output folder; existing
            merged files are unchanged.
        """
        files = [file_cell(outcome.file, self._source) for outcome in results]
        samples = dict(zip(map(encoded, files), map(encoded, sample_names(files)), strict=True))
        words = {encoded(file): encoded(as_word(file)) for file in files}
        for name, merged in MERGED_NAMES.items():
            sources = list(self._outputs(results, name))
            target = self._folder / merged
            if not sources:
                target.unlink(missing_ok=True)
                continue
            with write_file(target) as stream:
                if name.endswith(".tsv"):
                    _join_tables(sources, stream)
                else:
                    _join_files([(samples[f], words[f], path) for f, path in sources], stream)

    def _outputs(self, results: Sequence[FileResult], name: str) -> Iterator[tuple[bytes, Path]]:
        """Yield for each result that has the output `name`: the name of its file, and the path."""
        folder = self._folder.resolve()
        for outcome in results:
            outputs = outcome.result.get(OUTPUTS_KEY)
            if outcome.status.answered and isinstance(outputs, dict) and name in outputs:
                path = Path(str(outputs[name]))
                # The path may come from a launch.json that someone has edited.
                if not (path.is_file() and path.resolve().is_relative_to(folder)):
                    raise OSError(f"{path} is not a file in {self._folder}: rerun {outcome.file}")
                yield encoded(file_cell(outcome.file, self._source)), path


def _join_files(sources: Sequence[tuple[bytes, bytes, Path]], stream: IO[bytes]) -> None:
    """Write all entries of sources: sample, file and path.

    A sample and ``|`` before each id make the ids unique. The field `file` is replaced.
    """
    packed = sources[0][2].suffix == ".gz"
    lines_of_entry = 4 if ".fastq" in sources[0][2].suffixes else 0
    target = (
        gzip.GzipFile("", "wb", _GZIP_LEVEL, stream, mtime=0) if packed else nullcontext(stream)
    )
    with target as joined:
        for sample, file, path in sources:
            field = b" file=" + file.replace(b"\\", rb"\\")
            with gzip.open(path) if packed else path.open("rb") as source:
                for number, line in enumerate(source):
                    begins = number % lines_of_entry == 0 if lines_of_entry else line[:1] == b">"
                    entry = line[:1] + sample + b"|" + line[1:]
                    joined.write(_FILE_FIELD.sub(field, entry, 1) if begins else line)


def _join_tables(sources: Sequence[tuple[bytes, Path]], stream: IO[bytes]) -> None:
    """Write the rows of all tables below the header of the first; the cells of `file` are replaced.

    The tables of a launch have one worker, and so the same columns.
    """
    header: list[bytes] = []
    for file, path in sources:
        with path.open("rb") as source:
            own = source.readline().rstrip(b"\n").split(b"\t")
            if not header:
                header = own
                stream.write(b"\t".join(header) + b"\n")
            if own != header:
                raise OSError(f"{path} has other columns than {sources[0][1]}: rerun its file")
            place = header.index(_FILE) if _FILE in header else None
            for line in source:
                cells = line.rstrip(b"\n").split(b"\t")
                if place is not None:
                    cells[place] = file
                stream.write(b"\t".join(cells) + b"\n")


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
    merges
        Whether the outputs of all files are merged as well.
    is_written
        False if `end` could not write the table or merge the outputs.
    """

    source: Path
    target: Path
    files: Sequence[Path]
    facts: Mapping[str, Any]
    balancer: LoadBalancer
    merges: bool = True
    is_written: bool = field(default=True, init=False)
    _shown: int = field(default=-1, init=False)
    _throttle: Throttle = field(init=False)
    _merged: MergedOutputs = field(init=False)

    def __post_init__(self) -> None:
        self._throttle = Throttle(_INTERVAL_S)
        self._merged = MergedOutputs(self.source, self.target)

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
        known = len(self.balancer.results) + len(self.balancer.troubles)
        if not self._throttle.due or known == self._shown:
            return
        self._shown = known
        with self._throttle.timed():
            results = self._results("not done yet")
            with suppress(OSError):
                self._write(results, None, lasting=False)
        if self.merges:
            self._merged.update(results)

    def end(self) -> LaunchReport:
        """Write the final table and return the report.

        If the write fails, print the error; the exit code of the report is then not 0.
        """
        error = self.balancer.error
        reason = "" if error is None else f": {str(error).partition(chr(10))[0]}"
        results = self._results(f"the launch ended before this file was done{reason}")
        exit_code = self.balancer.get_exit_code() if self.files else 0
        if self.merges:
            try:
                self._merged.write(results)
            except OSError as raised:
                say(
                    f"error: the outputs of all files could not be merged: {raised}. Correct this "
                    "error, and rerun the command. The results of the files are unaffected."
                )
                exit_code, self.is_written = exit_code or 2, False
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
        return LaunchReport(results, rows, exit_code, self._merged.written)

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

    If a task's table is damaged, the joined table cannot be written, or the outputs cannot be
    merged, print the error, and return false: the work of this task and its own table are
    unaffected.

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

"""Result table of a launch: ``launch.tsv`` for people, ``launch.json`` for programs."""

import json
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from virnucpro.console import printable, say
from virnucpro.durable import write_file
from virnucpro.launch.balancer import LoadBalancer
from virnucpro.launch.cells import cell, encoded, file_cell
from virnucpro.launch.merged import MergedOutputs
from virnucpro.launch.results import FileResult, FileStatus
from virnucpro.launch.throttle import Throttle
from virnucpro.launch_dir import JSON_NAME, TSV_NAME

__all__ = ["LaunchReport", "LaunchTable", "readable", "table_rows"]

_INTERVAL_S = 1.0
"""Minimum seconds between two updates of the table on disk."""

_MAX_WIDTH = 60
"""Maximum number of characters of a table cell on a terminal."""

_SCALARS = (str, int, float, bool)
_OWN_COLUMNS = ("file", "status", "seconds", "gpu", "attempts", "error")


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
    """

    source: Path
    target: Path
    files: Sequence[Path]
    facts: Mapping[str, Any]
    balancer: LoadBalancer
    merges: bool = True
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
        """Write the current table, at most once per `_INTERVAL_S`; ignore write errors."""
        if not self._throttle.due:
            return
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
                exit_code = exit_code or 2
        try:
            rows = self._write(results, exit_code, lasting=True)
        except OSError as raised:
            notes = "; ".join(getattr(raised, "__notes__", ()))
            say(
                f"error: the table of this launch could not be written: {raised}; {notes}. Free "
                "disk space or make the folder writable. The results of the files are unaffected."
            )
            rows, exit_code = table_rows(results, self.source), exit_code or 2
        return LaunchReport(results, rows, exit_code, self._merged.written)

    def _results(self, reason_if_left: str) -> list[FileResult]:
        known = {one.file: one for one in self.balancer.results}
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
            "files": [_plain(one) for one in results],
        }
        with write_file(self.target / TSV_NAME, lasting=lasting) as stream:
            stream.writelines(b"\t".join(map(encoded, row)) + b"\n" for row in rows)
        with write_file(self.target / JSON_NAME, lasting=lasting) as stream:
            stream.write(json.dumps(content, indent=2, default=str).encode() + b"\n")
        return rows


def table_rows(results: Sequence[FileResult], input_dir: Path) -> list[list[str]]:
    """Return the lines of the result table, as lists of cells; the first line is the header.

    The table has one line per file. A field of the workers' results has a column if it contains a
    text, number or bool. File names are relative to `input_dir`. Missing values are ``NA``.
    """
    scalars = (
        name for one in results for name, value in one.result.items() if isinstance(value, _SCALARS)
    )
    fields = list(dict.fromkeys(scalars))
    header = ["file", *_column_names(fields), *_OWN_COLUMNS[1:]]
    return [header, *(_row(one, fields, input_dir) for one in results)]


def _column_names(fields: Sequence[str]) -> list[str]:
    """Return a unique column name for each field of the workers' results.

    If the name of a field is already a column name, the prefix ``result.`` is added.
    """
    names: list[str] = []
    for one in fields:
        name = cell(one)
        while name in (*_OWN_COLUMNS, *names):
            name = f"result.{name}"
        names.append(name)
    return names


def _row(one: FileResult, fields: Sequence[str], input_dir: Path) -> list[str]:
    values = [one.result.get(name) for name in fields]
    return [
        file_cell(one.file, input_dir),
        *(cell(value if isinstance(value, _SCALARS) else None) for value in values),
        one.status.value,
        "NA" if one.seconds is None else f"{one.seconds:.2f}",
        cell(one.gpu_id),
        str(one.attempts),
        cell(one.error or None),
    ]


def readable(rows: Sequence[Sequence[str]], left_out: str = "") -> list[list[str]]:
    """Return a copy of the table for the terminal: without empty columns, with shortened cells.

    Columns whose names match the regular expression `left_out` are left out, too.
    """
    columns = [
        ["worker" if name == "gpu" else _shortened(name), *map(_shortened, cells)]
        for name, *cells in zip(*rows, strict=True)
        if any(cell != "NA" for cell in cells) and not (left_out and re.fullmatch(left_out, name))
    ]
    return [list(row) for row in zip(*columns, strict=True)]


def _shortened(text: str) -> str:
    text = printable(text)
    return text if len(text) <= _MAX_WIDTH else text[: _MAX_WIDTH - 3] + "..."


def _plain(one: FileResult) -> dict[str, Any]:
    plain = asdict(one)
    plain["gpu"] = plain.pop("gpu_id")
    plain["seconds"] = None if one.seconds is None else round(one.seconds, 3)
    return plain

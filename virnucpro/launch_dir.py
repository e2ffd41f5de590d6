"""Files in the output folder of a launch: their names, and the only reader of launch.json.

::

    OUT/launch.tsv, OUT/launch.json     table of all files
    OUT/launch.logs/                    output of the workers
    OUT/launch.lock                     locked by the process that runs the launch
    OUT/launch.tasks/0003-of-0008/      table, lock and logs of task 3 of 8
"""

import json
from contextlib import suppress
from enum import StrEnum
from pathlib import Path
from typing import Any, Final

from virnucpro.console import described
from virnucpro.errors import StoreError

TSV_NAME: Final = "launch.tsv"
JSON_NAME: Final = "launch.json"
LOGS_NAME: Final = "launch.logs"
LOCK_NAME: Final = "launch.lock"
TASKS_NAME: Final = "launch.tasks"

OWN_NAMES: Final = {TSV_NAME, JSON_NAME, LOGS_NAME, LOCK_NAME, TASKS_NAME}
"""All names in the output folder that are not those of results of a file."""


def task_folder(target: Path, number: int, count: int) -> Path:
    """Return the folder of task `number`, from 0, of `count` tasks in the output folder."""
    return target / TASKS_NAME / f"{number:04d}-of-{count:04d}"


def is_launch(folder: Path) -> bool:
    """Return whether the folder contains the table of a launch."""
    return (folder / JSON_NAME).is_file()


class FileStatus(StrEnum):
    """Status of an input file in the result table."""

    DONE = "done"
    SKIPPED = "skipped"
    """An earlier launch has already processed the file."""
    PARTIAL = "partial"
    """The worker returned an incomplete result."""
    FAILED = "failed"
    TIMED_OUT = "timed_out"
    LEFT = "left"
    """The launch ended before the file was started or finished."""

    @property
    def answered(self) -> bool:
        """Whether a worker returned a result for the file, complete or partial."""
        return self in {FileStatus.DONE, FileStatus.SKIPPED, FileStatus.PARTIAL}

    @property
    def complete(self) -> bool:
        """Whether the file is completely processed."""
        return self in {FileStatus.DONE, FileStatus.SKIPPED}


_VALUES: Final[dict[str, Any]] = {
    "exit_code": int | None,
    "tasks": int | None,
    "seconds": int | float,
    "troubles": list,
    "files": list,
}
"""Types of the values of a launch.json that its readers need."""
_MOST_TASKS: Final = 10**6
"""A larger number of tasks is damage; each task is looked for."""

_FILE_VALUES: Final[dict[str, Any]] = {
    "file": str,
    "status": FileStatus,
    "gpu": int | None,
    "seconds": int | float | None,
    "attempts": int,
    "result": dict,
    "error": str,
    "details": str,
}
"""Types of the values of a file in a launch.json."""


def read_table(path: Path, advice: str = "rerun the launch to rewrite it") -> dict[str, Any]:
    """Return the content of a launch.json; the ``status`` of each file is a `FileStatus`.

    Raises
    ------
    StoreError
        If the table is damaged; the message ends with `advice`.
    OSError
        If it cannot be read.
    """
    if path.exists() and not path.is_file():  # to open a named pipe would block
        raise StoreError(f"{path} is not a regular file: remove it and {advice}.")
    try:
        content: dict[str, Any] = json.loads(path.read_bytes())
        _require_types({"tasks": None, **content}, _VALUES)
        _require_tasks(content.get("tasks") or 0)
        for file in content["files"]:
            file["status"] = FileStatus(file["status"])
            _require_types(file, _FILE_VALUES)
    except (ValueError, LookupError, TypeError, RecursionError) as error:
        raise StoreError(f"{path} is damaged ({described(error)}): {advice}.") from error
    return content


def _require_types(values: dict[str, Any], types: dict[str, Any]) -> None:
    for name, kind in types.items():
        if not isinstance(values[name], kind):
            raise TypeError(f"{name} is {type(values[name]).__name__}")


def _require_tasks(count: int) -> None:
    if not 0 <= count <= _MOST_TASKS:
        raise ValueError("invalid number of tasks")


def read_tables(target: Path, count: int) -> dict[int, dict[str, Any]]:
    """Return the content of each launch.json of `count` tasks that have begun, by their numbers.

    Raises
    ------
    StoreError
        If a table is damaged.
    OSError
        If a table cannot be read.
    """
    found = {}
    for number in range(count):
        path = task_folder(target, number, count) / JSON_NAME
        with suppress(FileNotFoundError):
            found[number] = read_table(path, f"rerun task {number}/{count} of the launch")
    return found

"""Current state of a launch, for the command ``status``."""

import json
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from virnucpro.console import printable
from virnucpro.errors import UsageError
from virnucpro.folder_lock import is_held
from virnucpro.launch.results import FileStatus
from virnucpro.launch.shares import FileShare, read_tables
from virnucpro.launch_dir import JSON_NAME, LOCK_NAME

__all__ = ["LaunchProgress", "is_launch", "read_launch"]


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
        lines = [f"launch, {self.state}: {sum(self.files.values()):,} files: {counts}"]
        return "\n".join(map(printable, (*lines, *self.failures)))


def is_launch(folder: Path) -> bool:
    """Return whether the folder contains the table of a launch."""
    return (folder / JSON_NAME).is_file()


def read_launch(folder: Path) -> LaunchProgress:
    """Return the state of the launch in a folder, read from its tables and lock files.

    Raises
    ------
    UsageError
        If a table is damaged.
    OSError
        If a table cannot be read.
    """
    content = _content(folder)
    count: int = content.get("tasks") or 0
    shares = [FileShare(number, count) for number in range(count)]
    # First the lock, then the table: a launch writes its exit code before it releases the lock.
    folders = [share.folder(folder) for share in shares] or [folder]
    running = any(is_held(one / LOCK_NAME) for one in folders)
    tables = list(read_tables(folder, count).values()) if count else []
    content = _content(folder)
    try:
        entries = {one["file"]: one for one in content["files"]}
        entries |= {one["file"]: one for table in tables for one in table["files"]}
        files = [(one["file"], FileStatus(one["status"]), one["error"]) for one in entries.values()]
        exit_code = content["exit_code"]
    except (ValueError, KeyError, TypeError) as error:
        raise _damaged(folder, error) from error
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


def _content(folder: Path) -> dict[str, Any]:
    try:
        content = json.loads((folder / JSON_NAME).read_text("utf-8"))
    except ValueError as error:
        raise _damaged(folder, error) from error
    if not isinstance(content, dict):
        raise _damaged(folder, TypeError("not an object"))
    return content


def _damaged(folder: Path, error: Exception) -> UsageError:
    return UsageError(f"{folder / JSON_NAME} is damaged ({error}): rerun the launch to rewrite it.")

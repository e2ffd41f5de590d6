"""State of a launch, read from its output folder."""

import json
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from virnucpro.console import printable
from virnucpro.errors import UsageError
from virnucpro.folder_lock import is_held
from virnucpro.launch.results import FileStatus
from virnucpro.launch.table import JSON_NAME, LOCK_NAME

__all__ = ["LaunchProgress", "is_launch", "read_launch"]


@dataclass(frozen=True, slots=True)
class LaunchProgress:
    """State of a launch.

    Attributes
    ----------
    state
        ``running``; ``complete``: all files done; ``incomplete``; ``stopped`` before its end.
    files
        Number of files by status.
    failures
        Name, status and error of each file that failed or is partial.
    """

    state: str
    files: dict[str, int]
    failures: tuple[str, ...]

    def as_dict(self) -> dict[str, Any]:
        """Return the state as plain data."""
        return {
            "command": "launch",
            "state": self.state,
            "files": sum(self.files.values()),
            **self.files,
            "failures": list(self.failures),
        }

    def as_text(self) -> str:
        """Return the state as lines for people."""
        counts = ", ".join(f"{number:,} {status}" for status, number in self.files.items())
        lines = [f"launch, {self.state}: {sum(self.files.values()):,} files: {counts}"]
        return "\n".join(map(printable, (*lines, *self.failures)))


def is_launch(folder: Path) -> bool:
    """Return whether the folder holds the table of a launch."""
    return (folder / JSON_NAME).is_file()


def read_launch(folder: Path) -> LaunchProgress:
    """Read the state of a launch.

    Raises
    ------
    UsageError
        If its table is damaged.
    OSError
        If its table cannot be read.
    """
    # In this order: a launch that ends in between writes its exit code before it drops the lock.
    running = is_held(folder / LOCK_NAME)
    text = (folder / JSON_NAME).read_text("utf-8")
    try:
        content = json.loads(text)
        files = [(one["file"], FileStatus(one["status"]), one["error"]) for one in content["files"]]
        exit_code = content["exit_code"]
    except (ValueError, KeyError, TypeError) as error:
        raise UsageError(
            f"{folder / JSON_NAME} is damaged ({error}): rerun the launch to rewrite it."
        ) from error
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

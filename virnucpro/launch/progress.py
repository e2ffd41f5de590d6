"""How far a launch is, read from its folder by anybody."""

import json
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from virnucpro.errors import UsageError
from virnucpro.launch.results import FileStatus, shown
from virnucpro.launch.summary import JSON_NAME, LOCK_NAME
from virnucpro.runtime.folder_lock import is_held

__all__ = ["LaunchProgress", "is_launch", "read_launch"]


@dataclass(frozen=True, slots=True)
class LaunchProgress:
    """How a launch stands.

    Attributes
    ----------
    state
        ``running``; ``complete`` where all files are done; ``incomplete``; ``stopped`` before its
        end.
    files
        How many have each status.
    failures
        Names of files and what became of them, a line each.
    """

    state: str
    files: dict[str, int]
    failures: tuple[str, ...]

    def as_dict(self) -> dict[str, Any]:
        """Give it as plain data."""
        return {
            "command": "launch",
            "state": self.state,
            "files": sum(self.files.values()),
            **self.files,
            "failures": list(self.failures),
        }

    def as_text(self) -> str:
        """Give it to a person."""
        counts = ", ".join(f"{number:,} {status}" for status, number in self.files.items())
        lines = [f"launch, {self.state}: {sum(self.files.values()):,} files: {counts}"]
        return "\n".join(map(shown, (*lines, *self.failures)))


def is_launch(folder: Path) -> bool:
    """Say whether a launch has written its table here."""
    return (folder / JSON_NAME).is_file()


def read_launch(folder: Path) -> LaunchProgress:
    """Read how far the launch of a folder is.

    Raises
    ------
    UsageError
        When its table is damaged.
    OSError
        When it cannot be read.
    """
    # In this order: a launch that ends in between has written its end before it lets go.
    running = is_held(folder / LOCK_NAME)
    text = (folder / JSON_NAME).read_text("utf-8")
    try:
        content = json.loads(text)
        files = [(one["file"], FileStatus(one["status"]), one["error"]) for one in content["files"]]
        exit_code = content["exit_code"]
    except (ValueError, KeyError, TypeError) as error:
        raise UsageError(
            f"{folder / JSON_NAME} is damaged ({error}): repeat the launch, which writes it anew."
        ) from error
    ended = "stopped" if exit_code is None else "complete" if exit_code == 0 else "incomplete"
    counted = Counter(status for _, status, _ in files)
    return LaunchProgress(
        "running" if running else ended,
        {status.value: counted[status] for status in FileStatus if counted[status]},
        tuple(
            f"{file}: {status}: {error}"
            for file, status, error in files
            if status in {FileStatus.FAILED, FileStatus.TIMED_OUT, FileStatus.PARTIAL}
        ),
    )

"""What a launch hears of each file, and of its workers: plain data."""

import queue
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

__all__ = [
    "FileResult",
    "FileStatus",
    "ResultQueue",
    "RunOver",
    "WorkerTrouble",
    "reason_of",
    "shown",
]


class FileStatus(StrEnum):
    """What became of a file."""

    DONE = "done"
    SKIPPED = "skipped"
    """It had been done before."""
    PARTIAL = "partial"
    """Its worker says that something is missing in what it made."""
    FAILED = "failed"
    TIMED_OUT = "timed_out"
    LEFT = "left"
    """Nobody has begun it, or nobody could end it: the launch was over before."""

    @property
    def answered(self) -> bool:
        """Whether something was made of the file."""
        return self in {FileStatus.DONE, FileStatus.SKIPPED, FileStatus.PARTIAL}


@dataclass(frozen=True, slots=True)
class FileResult:
    """What became of one file.

    Attributes
    ----------
    file
        The path, as the worker got it.
    gpu_id
        Who did it; None where nobody did.
    seconds
        That the last attempt took in its worker, None where nobody knows.
    attempts
        How often it was begun, as far as workers died of it or it was answered.
    result
        What the worker returned.
    error
        Why there is no result, in a line.
    details
        The whole traceback behind `error`.
    """

    file: str
    status: FileStatus
    gpu_id: int | None = None
    seconds: float | None = None
    attempts: int = 0
    result: Mapping[str, Any] = field(default_factory=dict)
    error: str = ""
    details: str = ""

    @property
    def complete(self) -> bool:
        """Whether the file is done, now or before."""
        return self.status in {FileStatus.DONE, FileStatus.SKIPPED}


@dataclass(frozen=True, slots=True)
class WorkerTrouble:
    """A worker that could not be set up or put away, or died; others go on."""

    gpu_id: int | None
    error: str


@dataclass(frozen=True, slots=True)
class RunOver:
    """There will be no more results. `error` says why before all files were answered."""

    error: BaseException | None = None


def shown(text: str) -> str:
    """Give a text for a terminal: what is no letter there, such as a colour code, is spelt out."""
    return "".join(
        one if one.isprintable() else one.encode("unicode_escape").decode("ascii") for one in text
    )


ResultQueue = queue.SimpleQueue[FileResult | WorkerTrouble | RunOver]

_NAMED = re.compile(r"(?:[\w.]+\.)?(\w+): ")


def reason_of(traceback: str) -> str:
    """Give what a traceback says, without the way there: the error's class, its text and its notes.

    Of a worker's death, how it ended comes first.
    """
    lines = [line for line in traceback.strip().splitlines() if line.strip()]
    frames = [number for number, line in enumerate(lines) if line.startswith("  ")]
    if not frames:
        return "; ".join(line.strip() for line in lines)
    said = "; ".join(line.strip() for line in lines[frames[-1] + 1 :])
    reason = _NAMED.sub(r"\1: ", said, count=1)
    return f"{lines[0]} {reason}" if lines[0].startswith("worker ") else reason

"""Results of files and events of workers in a launch, as plain data."""

import math
import numbers
import queue
import re
from collections import Counter
from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

__all__ = [
    "MAX_DEPTH",
    "FileResult",
    "FileStatus",
    "ResultQueue",
    "RunOver",
    "WorkerTrouble",
    "plain_result",
    "reason_of",
]

MAX_DEPTH = 32
"""Maximum nesting of a worker's result."""

_QUALIFIED_CLASS = re.compile(r"(?:[\w.]+\.)?(\w+): ")


class FileStatus(StrEnum):
    """State of a file after a launch."""

    DONE = "done"
    SKIPPED = "skipped"
    """An earlier launch did it."""
    PARTIAL = "partial"
    """Its worker returned an incomplete result."""
    FAILED = "failed"
    TIMED_OUT = "timed_out"
    LEFT = "left"
    """The launch ended before the file was started or finished."""

    @property
    def answered(self) -> bool:
        """Whether the file has a result."""
        return self in {FileStatus.DONE, FileStatus.SKIPPED, FileStatus.PARTIAL}


@dataclass(frozen=True, slots=True)
class FileResult:
    """Result of one file.

    Attributes
    ----------
    file
        Path of the file, as given to the worker.
    gpu_id
        Number of the worker; None if no worker processed the file.
    seconds
        Duration of the last attempt; None if unknown.
    attempts
        Number of attempts that ended in an answer or in the death of their worker.
    result
        Values that the worker returned.
    error
        Reason of a failure, in one line.
    details
        Traceback of a failure.
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
        """Whether the file is done, by this launch or an earlier one."""
        return self.status in {FileStatus.DONE, FileStatus.SKIPPED}


@dataclass(frozen=True, slots=True)
class WorkerTrouble:
    """Failure of a worker outside of a file, or a retry of a file."""

    gpu_id: int | None
    error: str


@dataclass(frozen=True, slots=True)
class RunOver:
    """Last item of a queue of results; `error` is the reason of an early end."""

    error: BaseException | None = None


ResultQueue = queue.SimpleQueue[FileResult | WorkerTrouble | RunOver]


def reason_of(traceback: str) -> str:
    """Return a traceback's last error in one line: class, message and notes.

    A first line about the exit of a worker is kept.
    """
    lines = [line for line in traceback.strip().splitlines() if line.strip()]
    frames = [number for number, line in enumerate(lines) if line.startswith("  ")]
    if not frames:
        return "; ".join(line.strip() for line in lines)
    error = "; ".join(line.strip() for line in lines[frames[-1] + 1 :])
    reason = _QUALIFIED_CLASS.sub(r"\1: ", error, count=1)
    return f"{lines[0]} {reason}" if lines[0].startswith("worker ") else reason


def plain_result(data: object) -> dict[str, Any]:
    """Return a worker's result as a dict of JSON types.

    Numbers of other types become Python's own, numbers that are not finite their names, other
    objects their text. A result that is not a mapping gets the key ``result``.

    Raises
    ------
    ValueError
        If a key is neither text nor a number, two keys have the same text, or the nesting exceeds
        `MAX_DEPTH`.
    Exception
        From an object's own ``__str__`` or iteration.
    """
    return _plain_mapping(data if isinstance(data, Mapping) else {"result": data}, MAX_DEPTH)


def _plain(value: object, depth: int) -> object:
    if isinstance(value, Mapping | list | tuple | AbstractSet):
        if depth == 0:
            raise ValueError(
                f"more than {MAX_DEPTH} nested levels, or an object that contains itself"
            )
        if isinstance(value, Mapping):
            return _plain_mapping(value, depth - 1)
        return [_plain(one, depth - 1) for one in value]
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, numbers.Integral):
        return int(value)
    if isinstance(value, numbers.Real) and math.isfinite(value):
        return float(value)
    return str(value)


def _plain_mapping(mapping: Mapping[Any, object], depth: int) -> dict[str, Any]:
    keys = Counter(map(str, mapping))
    for key in mapping:
        if not isinstance(key, str | numbers.Real) or keys[str(key)] > 1:
            raise ValueError(f"invalid key {key!r}: keys must be text or numbers, and unique")
    return {str(key): _plain(value, depth) for key, value in mapping.items()}

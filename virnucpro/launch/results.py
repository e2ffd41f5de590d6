"""Results of files and events of workers in a launch, and their cells."""

import math
import numbers
import queue
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote

from virnucpro.console import CONTROL, encoded_file_name
from virnucpro.launch_dir import FileStatus

MAX_DEPTH = 32
"""Maximum number of nested levels (dicts, lists) in a worker's result."""

_QUALIFIED_CLASS = re.compile(r"(?:[\w.]+\.)?(\w+): ")


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
        Number of attempts that ended with a result, an error or the death of the worker.
    result
        Values that the worker returned for the file.
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
        """Whether the file is completely processed, by this launch or an earlier launch."""
        return self.status.complete


@dataclass(frozen=True, slots=True)
class WorkerTrouble:
    """Event of a launch: a worker failed outside the processing of a file, or a file is retried."""

    gpu_id: int | None
    error: str


@dataclass(frozen=True, slots=True)
class RunOver:
    """Last item of the result queue: the launch has ended.

    `error` is the exception that ended the launch early; None if the launch ended normally.
    """

    error: BaseException | None = None


ResultQueue = queue.SimpleQueue[FileResult | WorkerTrouble | RunOver]


def reason_of(traceback: str) -> str:
    """Return the last error of a traceback in one line: class, message and notes.

    If the first line describes the death of a worker, the result starts with this line.
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

    Numbers of other libraries become Python numbers, their arrays become lists. NaN, infinity and
    all other objects become text. A single value is stored under the key ``result``.

    Raises
    ------
    TypeError
        If the result is a list, an array or another iterable without names.
    ValueError
        If a key is neither text nor a number, two keys have the same text, or the nesting exceeds
        `MAX_DEPTH`, or an integer has more than 4,300 digits.
    Exception
        Any error that ``__str__`` or the iteration of an object raises.
    """
    if isinstance(data, Iterable) and not isinstance(data, Mapping | str | bytes):
        raise TypeError(
            f"its type is {type(data).__name__}, but columns of the table have names: return a "
            "dict, such as {'genes': 12}"
        )
    mapping = data if isinstance(data, Mapping) else {"result": data}
    plain: dict[str, Any] = _plain(mapping, MAX_DEPTH + 1)
    return plain


def _plain(value: object, depth: int) -> Any:  # noqa: ANN401 - any type of JSON
    """Convert a value to JSON types; `depth` is the maximum number of nested levels."""
    if depth == 0 and isinstance(value, Mapping | list | tuple | AbstractSet):
        raise ValueError(f"more than {MAX_DEPTH} nested levels, or an object that contains itself")
    match value:
        case None | bool() | str():
            return value
        case Mapping():
            keys = Counter(map(str, value))
            for key in value:
                if not isinstance(key, str | numbers.Real) or keys[str(key)] > 1:
                    raise ValueError(f"invalid key {key!r}: keys must be unique texts or numbers")
            return {str(key): _plain(item, depth - 1) for key, item in value.items()}
        case list() | tuple() | AbstractSet():
            return [_plain(item, depth - 1) for item in value]
        case numbers.Integral():
            str(int(value))  # fails for more digits than Python writes and reads, 4,300
            return int(value)
        case numbers.Real() if math.isfinite(value):
            return float(value)
    as_list = None if isinstance(value, type) else getattr(value, "tolist", None)
    return _plain(as_list(), depth - 1) if callable(as_list) and depth else str(value)


def file_cell(file: str, input_dir: Path) -> str:
    """Return the name of an input file relative to the input folder, safe for tables."""
    return encoded_file_name(str(Path(file).relative_to(input_dir)))


def cell(value: object) -> str:
    """Return a value as text in one line without tabs; None as ``NA``."""
    if value is None:
        return "NA"
    text = f"{value:.6g}" if isinstance(value, float) else str(value)
    return " ".join(text.split()) or "NA"


def encoded(text: str) -> bytes:
    """Return text as UTF-8, with percent-encoded control characters.

    Texts that are not valid UTF-8, such as errors, keep their original bytes.
    """
    text = CONTROL.sub(lambda match: quote(match[0]), text)
    try:
        return text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:  # surrogates that do not encode a byte
        return text.encode("utf-8", "backslashreplace")

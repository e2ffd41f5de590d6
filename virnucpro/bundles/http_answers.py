"""What a server's answer means for a download: pure decisions on status and headers."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from email.message import Message
from http import HTTPStatus
from typing import Final

__all__ = [
    "ChangedError",
    "Placement",
    "RefusedError",
    "TransientError",
    "judge_status",
    "placement_of",
    "size_of",
    "validator_of",
]

_NUMBER: Final = re.compile(r"[0-9]{1,18}")
"""No file has more bytes; Python refuses to read numbers of thousands of digits."""

_RANGE: Final = re.compile(
    rf"bytes (?:({_NUMBER.pattern})-{_NUMBER.pattern}|\*)/({_NUMBER.pattern}|\*)"
)
_PASSING: Final = frozenset(
    {HTTPStatus.REQUEST_TIMEOUT, HTTPStatus.TOO_EARLY, HTTPStatus.TOO_MANY_REQUESTS}
)
_MEANING: Final[Mapping[int, str]] = {
    HTTPStatus.UNAUTHORIZED: "the server wants to know who asks",
    HTTPStatus.FORBIDDEN: "the server, or a proxy before it, refuses to give it",
    HTTPStatus.NOT_FOUND: "there is no such file on the server",
    HTTPStatus.GONE: "the file has been taken away from the server",
    HTTPStatus.METHOD_NOT_ALLOWED: "the server does not answer such a question",
    HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE: "the server has none of its bytes to give",
    HTTPStatus.NOT_IMPLEMENTED: "the server does not answer such a question",
    HTTPStatus.PROXY_AUTHENTICATION_REQUIRED: "the proxy wants to know who asks",
}


class RefusedError(Exception):
    """Asking again would not help."""


class TransientError(Exception):
    """Asking again may help, `wait` seconds from now at the earliest."""

    def __init__(self, reason: str, wait: float = 0.0) -> None:
        super().__init__(reason)
        self.wait = wait


class ChangedError(TransientError):
    """What arrived earlier does not belong to what the server has now: it counts for nothing."""


@dataclass(frozen=True, slots=True)
class Placement:
    """Where an answer's bytes belong in the file, and how many the whole has, if known."""

    start: int
    size: int | None


def judge_status(status: int, reason: str, headers: Message) -> RefusedError | TransientError:
    """Say whether a refusal is for good."""
    server_failed = status >= HTTPStatus.INTERNAL_SERVER_ERROR and status not in _MEANING
    if server_failed or status in _PASSING:
        return TransientError(
            f"the server is not well ({status} {reason})",
            float(_number(headers.get("Retry-After", "")) or 0),
        )
    return RefusedError(f"{_MEANING.get(status, 'the server refuses')} ({status} {reason})")


def size_of(headers: Message, *, beyond: bool = False) -> int | None:
    """Read the size of a whole file: of a plain answer, or of one to a range `beyond` its end."""
    if beyond:
        match = _RANGE.fullmatch(headers.get("Content-Range", "").strip())
        return int(match[2]) if match and match[2] != "*" else None
    return _number(headers.get("Content-Length", ""))


def _number(text: str) -> int | None:
    return int(text) if _NUMBER.fullmatch(text.strip()) else None


def validator_of(headers: Message) -> str | None:
    """Choose what identifies this version of the file: its strong ETag, else its date."""
    tag = headers.get("ETag", "").strip()
    if tag.startswith('"'):
        return tag
    return headers.get("Last-Modified")


def placement_of(status: int, headers: Message, have: int, known_size: int | None) -> Placement:
    """Place an answer.

    Parameters
    ----------
    status, headers
        The answer's.
    have
        Bytes that arrived earlier, and that a range request went on from.
    known_size
        The file's size, as it was told earlier.

    Raises
    ------
    RefusedError
        When the content comes encoded, so that its bytes are not the file's.
    ChangedError
        When a range is not the one that was asked for, or of a file of another size.
    """
    encoding = headers.get("Content-Encoding", "identity").strip().lower()
    if encoding not in ("", "identity"):
        raise RefusedError(f"the server sends it encoded ({encoding}), which was not asked for")
    if status != HTTPStatus.PARTIAL_CONTENT:
        return Placement(0, size_of(headers))
    told = headers.get("Content-Range", "").strip()
    match = _RANGE.fullmatch(told)
    if not match or match[1] is None or int(match[1]) != have:
        raise ChangedError(
            f"the server sent the range {told!r} where bytes from {have} were asked for"
        )
    size = None if match[2] == "*" else int(match[2])
    if known_size is not None and size not in (None, known_size):
        raise ChangedError(f"the file had {known_size:,} bytes before, and has {size:,} now")
    return Placement(have, known_size if size is None else size)

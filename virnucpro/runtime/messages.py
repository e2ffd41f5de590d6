"""Messages of a worker to its parent, and their form as bytes.

A frame is one tag byte, the body's length as 8 bytes big endian, and the body. The body is JSON,
or the bytes of a report. The parent unpickles nothing to read a frame: a report's body stays bytes
until the report is taken.
"""

import json
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from virnucpro.errors import WorkerError

__all__ = [
    "Decoder",
    "Failure",
    "Finished",
    "Mark",
    "Message",
    "Progress",
    "Report",
    "Started",
    "encode",
]

_HEADER = struct.Struct(">cQ")


@dataclass(frozen=True, slots=True)
class Started:
    """The worker's process is set up; next, its function is loaded."""


@dataclass(frozen=True, slots=True)
class Progress:
    """`done` of `total` rows are done. Also a heartbeat."""

    done: int
    total: int


@dataclass(frozen=True, slots=True)
class Mark:
    """The worker starts a piece of work; its function chooses the numbers of `place`.

    A worker died in the piece of its last mark.
    """

    place: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Report:
    """A result, pickled."""

    payload: bytes


@dataclass(frozen=True, slots=True)
class Failure:
    """The exception of a worker's function, or of its loading.

    A `permanent` one would occur again after a restart.
    """

    kind: str
    message: str
    traceback: str
    permanent: bool = False


@dataclass(frozen=True, slots=True)
class Finished:
    """The worker's function returned."""


Message = Started | Progress | Mark | Report | Failure | Finished

_REPORT = b"R"
_TYPES: dict[bytes, Callable[..., Message]] = {
    b"S": Started,
    b"P": Progress,
    b"M": Mark,
    _REPORT: Report,
    b"X": Failure,
    b"F": Finished,
}
_TAGS = {kind: tag for tag, kind in _TYPES.items()}


def encode(message: Message) -> tuple[bytes, bytes]:
    """Return header and body of a message's frame, separate so that a large body is not copied."""
    if isinstance(message, Report):
        body = message.payload
    else:
        values = [getattr(message, name) for name in message.__match_args__]
        body = json.dumps(values).encode("ascii")
    return _HEADER.pack(_TAGS[type(message)], len(body)), body


class Decoder:
    """Decodes messages from pieces of the byte stream."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    @property
    def unfinished(self) -> int:
        """Number of bytes of an incomplete message."""
        return len(self._buffer)

    def feed(self, data: bytes) -> Iterator[Message]:
        """Add `data`; yield every message that is complete now.

        Raises
        ------
        WorkerError
            If the bytes are not a frame: other code than the worker's queue wrote into its pipe.
        """
        self._buffer += data
        while len(self._buffer) >= _HEADER.size:
            tag, length = _HEADER.unpack_from(self._buffer)
            end = _HEADER.size + length
            if tag not in _TYPES:
                raise _foreign(f"tag {tag!r}")
            if len(self._buffer) < end:
                return
            with memoryview(self._buffer) as view:
                body = bytes(view[_HEADER.size : end])
            del self._buffer[:end]
            yield _decode(tag, body)


def _decode(tag: bytes, body: bytes) -> Message:
    if tag == _REPORT:
        return Report(body)
    try:
        values = (tuple(one) if isinstance(one, list) else one for one in json.loads(body))
        return _TYPES[tag](*values)
    except (TypeError, ValueError) as error:
        raise _foreign(f"a body of {len(body)} bytes after tag {tag!r}: {error}") from error


def _foreign(what: str) -> WorkerError:
    return WorkerError(
        f"a worker's pipe contains foreign bytes ({what}): its function must send only through "
        "results_queue and must not close file descriptors that it did not open."
    )

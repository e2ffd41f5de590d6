"""What a worker says to its parent, and how it travels as bytes.

A frame is one tag byte, the body's length as 8 bytes big endian, and the body. The parent never
unpickles to read a frame: a report's body stays bytes until somebody asks for the report.
"""

import json
import struct
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass

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
_PROGRESS = struct.Struct(">qq")
_PLACE_BYTES = 8


@dataclass(frozen=True, slots=True)
class Started:
    """The worker's process is set up; its function is loaded next."""


@dataclass(frozen=True, slots=True)
class Progress:
    """Of `total` rows `done` are done; also a sign of life."""

    done: int
    total: int


@dataclass(frozen=True, slots=True)
class Mark:
    """The worker begins on a piece of work: where it is, in numbers that its function chooses.

    The last one told is the piece in which a worker died.
    """

    place: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Report:
    """A result, pickled."""

    payload: bytes


@dataclass(frozen=True, slots=True)
class Failure:
    """The worker's function raised, or could not be loaded: what the exception says of itself.

    One that is `permanent` would come again: nothing that a restart changes was at fault.
    """

    kind: str
    message: str
    traceback: str
    permanent: bool = False


@dataclass(frozen=True, slots=True)
class Finished:
    """The worker's function returned."""


Message = Started | Progress | Mark | Report | Failure | Finished


def encode(message: Message) -> tuple[bytes, bytes]:
    """Return header and body of a message's frame, apart so that a large body is not copied."""
    match message:
        case Report(payload):
            tag, body = b"R", payload
        case Progress(done, total):
            tag, body = b"P", _PROGRESS.pack(done, total)
        case Mark(place):
            tag, body = b"M", struct.pack(f">{len(place)}q", *place)
        case Failure():
            tag, body = b"X", json.dumps(asdict(message)).encode("ascii")
        case Started():
            tag, body = b"S", b""
        case Finished():
            tag, body = b"F", b""
    return _HEADER.pack(tag, len(body)), body


class Decoder:
    """Turns bytes, cut anywhere, back into messages."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    @property
    def unfinished(self) -> int:
        """Bytes of a message whose end has not come yet."""
        return len(self._buffer)

    def feed(self, data: bytes) -> Iterator[Message]:
        """Yield every message that is whole once `data` is added.

        Raises
        ------
        WorkerError
            When the bytes are no frame: something other than the worker's own queue wrote into its
            pipe.
        """
        self._buffer += data
        while len(self._buffer) >= _HEADER.size:
            tag, length = _HEADER.unpack_from(self._buffer)
            end = _HEADER.size + length
            if tag not in _BODIES:
                raise _foreign(f"tag {tag!r}")
            if len(self._buffer) < end:
                return
            with memoryview(self._buffer) as view:
                body = bytes(view[_HEADER.size : end])
            del self._buffer[:end]
            yield _decode(tag, body)


def _decode(tag: bytes, body: bytes) -> Message:
    try:
        return _BODIES[tag](body)
    except (struct.error, TypeError, ValueError) as error:
        raise _foreign(f"a body of {len(body)} bytes after tag {tag!r}: {error}") from error


def _mark(body: bytes) -> Mark:
    return Mark(struct.unpack(f">{len(body) // _PLACE_BYTES}q", body))


def _foreign(what: str) -> WorkerError:
    return WorkerError(
        f"a worker's pipe carries foreign bytes ({what}): its function must send through "
        "results_queue alone and close no file descriptor that it did not open."
    )


_BODIES: dict[bytes, Callable[[bytes], Message]] = {
    b"S": lambda _: Started(),
    b"P": lambda body: Progress(*_PROGRESS.unpack(body)),
    b"M": _mark,
    b"R": Report,
    b"X": lambda body: Failure(**json.loads(body)),
    b"F": lambda _: Finished(),
}

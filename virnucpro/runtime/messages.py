"""Messages of a worker to its parent, and their form as bytes.

A frame is one tag byte, the body's length as 8 bytes big endian, and the body. The parent unpickles
nothing to read a frame: a report's body stays bytes until the report is taken.
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


def encode(message: Message) -> tuple[bytes, bytes]:
    """Return header and body of a message's frame, separate so that a large body is not copied."""
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
        f"a worker's pipe contains foreign bytes ({what}): its function must send only through "
        "results_queue and must not close file descriptors that it did not open."
    )


_BODIES: dict[bytes, Callable[[bytes], Message]] = {
    b"S": lambda _: Started(),
    b"P": lambda body: Progress(*_PROGRESS.unpack(body)),
    b"M": _mark,
    b"R": Report,
    b"X": lambda body: Failure(**json.loads(body)),
    b"F": lambda _: Finished(),
}

"""Messages of a worker to its parent process: their encoding as bytes, and the channel they take.

An encoded message has three parts: one byte for its type, the length of its content (8 bytes, big
endian), and the content. The content is JSON or, for a report, a pickle. The parent unpickles a
report only when a caller gets it from the results queue. The parent's data, such as the answer to
`Ask`, take the same channel in the other direction: their length (8 bytes) and the bytes.

Every worker imports this module. Messages are named tuples, since their classes are created faster
than data classes. Two messages without content are equal: compare their types.
"""

import errno
import json
import os
import pickle
import struct
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from virnucpro.errors import WorkerError

_HEADER = struct.Struct(">cQ")
_LENGTH = struct.Struct(">Q")

_READ_SIZE = 1 << 16
"""Size in bytes of the buffer with data of the parent; smaller messages are written at once."""

MOST_ANSWER_BYTES = 1 << 16
"""Maximum size of a pickled answer."""

UNGUARDED_CODE = 119
"""Exit code of a worker whose main script would start workers again."""

_INTERRUPTED = (
    "a signal handler interrupted an earlier message of this worker; further messages cannot be "
    "sent. Do not raise exceptions from signal handlers in worker functions."
)
_CLOSED = (
    "the pipe of this worker to its parent is closed: code of the worker closed it. Do not close "
    "file descriptors in worker functions that they did not open."
)


class Started(NamedTuple):
    """Message: the process of the worker is set up, and loads the worker function next."""


class Progress(NamedTuple):
    """Message: the worker is alive and has computed `done` of `total` rows."""

    done: int
    total: int


class Mark(NamedTuple):
    """Message: the worker starts the piece of work that the numbers `place` identify.

    The worker function defines the meaning of these numbers. If the worker dies, the parent
    assumes that it died in the last reported piece of work.
    """

    place: tuple[int, ...]


class Ask(NamedTuple):
    """Message: the worker function asks for an answer of the parent, such as its next work."""


class Report(NamedTuple):
    """Message: a result of the worker function, as pickled bytes."""

    payload: bytes


class Failure(NamedTuple):
    """Message: the worker function, or the import of its module, raised an exception.

    `permanent` is true if the exception would occur again after a restart.
    """

    kind: str
    message: str
    traceback: str
    permanent: bool = False


class Finished(NamedTuple):
    """Message: the worker function returned."""


Message = Started | Progress | Mark | Ask | Report | Failure | Finished

_REPORT = b"R"
_TYPES: dict[bytes, Callable[..., Message]] = {
    b"S": Started,
    b"P": Progress,
    b"M": Mark,
    b"A": Ask,
    _REPORT: Report,
    b"X": Failure,
    b"F": Finished,
}
_TAGS = {kind: tag for tag, kind in _TYPES.items()}


def encode(message: Message) -> tuple[bytes, bytes]:
    """Return a message as two byte strings: header (type and length) and content."""
    if isinstance(message, Report):
        body = message.payload
    else:
        values = [getattr(message, name) for name in message.__match_args__]
        body = json.dumps(values).encode("ascii")
    return _HEADER.pack(_TAGS[type(message)], len(body)), body


def frame(*parts: bytes | memoryview) -> list[memoryview]:
    """Return data for a child, joined from the given parts, as pieces to write in order."""
    return _pieces(_LENGTH.pack(sum(map(len, parts))), *parts)


def _pieces(*parts: bytes | memoryview) -> list[memoryview]:
    """Return what is written at once: all parts of a small message, else one part after the other.

    In one piece, a message does not mix with those of a process that the worker has forked.
    """
    if sum(map(len, parts)) < _READ_SIZE:
        return [memoryview(b"".join(parts))]
    return [memoryview(part) for part in parts]


def encode_answer(payload: object) -> bytes:
    """Return the answer to an `Ask` as bytes.

    Raises
    ------
    ValueError
        If the pickled `payload` has more than `MOST_ANSWER_BYTES`.
    """
    body = pickle.dumps(payload, protocol=pickle.HIGHEST_PROTOCOL)
    if len(body) > MOST_ANSWER_BYTES:
        raise ValueError(
            f"an answer of {len(body):,} bytes is too large for a worker: send at most "
            f"{MOST_ANSWER_BYTES:,} bytes, such as the path of a file"
        )
    return body


class Decoder:
    """Decodes messages from a byte stream that arrives in pieces."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    @property
    def unfinished(self) -> int:
        """Number of received bytes of an incomplete message."""
        return len(self._buffer)

    def feed(self, data: bytes) -> Iterator[Message]:
        """Decode the received bytes `data`; yield each message that is complete.

        Raises
        ------
        WorkerError
            If the bytes are not a valid message, because other code wrote into the pipe.
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
        values = (tuple(value) if isinstance(value, list) else value for value in json.loads(body))
        return _TYPES[tag](*values)
    except (TypeError, ValueError) as error:
        raise _foreign(f"message type {tag!r}, {len(body)} bytes of content: {error}") from error


def _foreign(what: str) -> WorkerError:
    return WorkerError(
        f"a worker's pipe contains invalid data ({what}). The worker function must send only "
        "through results_queue, and must not close file descriptors that it did not open."
    )


PROGRESS_INTERVAL_S = 0.1
"""Minimum seconds between two progress messages of a worker."""


class WorkerChannel:
    """The ``results_queue`` argument of a worker function.

    Each worker has its own pipe and lock, so it cannot block other workers. All methods are
    thread-safe.

    Parameters
    ----------
    descriptor
        File descriptor of the worker's end of the pipe, in blocking mode.
    """

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._reader = os.fdopen(descriptor, "rb", buffering=_READ_SIZE, closefd=False)
        # Re-entrant: a signal handler that sends during a send gets an error, not a deadlock.
        self._lock = threading.RLock()
        self._unusable = ""
        self._next_progress = -float("inf")
        self._held_back: Progress | None = None

    def put(self, payload: object) -> None:
        """Send a result of any size.

        Raises
        ------
        Exception
            If `payload` cannot be pickled; nothing is sent.
        """
        # Plain pickle: multiprocessing sends tensors as handles, invalid after this process ends.
        self.send(Report(pickle.dumps(payload, protocol=pickle.HIGHEST_PROTOCOL)))

    def progress(self, done: int, total: int) -> None:
        """Report that `done` of `total` rows are computed. Frequent calls are cheap.

        At most one message per `PROGRESS_INTERVAL_S` is sent. The last message is always sent.
        """
        message = Progress(done, total)
        now = time.monotonic()
        if now < self._next_progress and done < total:
            self._held_back = message
            return
        self._next_progress = now + PROGRESS_INTERVAL_S
        self._held_back = None
        self.send(message)

    def mark(self, place: tuple[int, ...]) -> None:
        """Report the start of the piece of work `place`; ``()`` reports that the worker waits.

        If this worker dies, the parent treats this piece as the possible cause. The message is sent
        immediately; a call takes about 5 microseconds.
        """
        self.send(Mark(place))

    def ask(self) -> Any:  # noqa: ANN401 - the parent answers what it likes
        """Ask the parent, and wait for its answer; only one thread may ask.

        While the worker also waits (its last `mark` is empty), no deadline applies to it.

        Raises
        ------
        BrokenPipeError
            If the parent has ended.
        """
        self.send(Ask())
        answer = self.receive()
        if answer is None:
            raise BrokenPipeError("the parent of this worker has ended")
        return pickle.loads(answer)  # noqa: S301 - written by this worker's own parent

    def receive(self) -> bytes | None:
        """Wait for data of the parent; return them, or None if the parent has ended."""
        head = self._reader.read(_LENGTH.size)
        if len(head) < _LENGTH.size:
            return None
        length = _LENGTH.unpack(head)[0]
        data = self._reader.read(length)
        return data if len(data) == length else None

    def flush_progress(self) -> None:
        """Send the last progress message if it was not sent yet."""
        message, self._held_back = self._held_back, None
        if message is not None:
            self.send(message)

    def send(self, message: Message) -> None:
        """Send one message; return when all its bytes are in the pipe.

        Raises
        ------
        WorkerError
            If an earlier message is incomplete, because a signal handler raised an exception, or
            if the worker's own code has closed the pipe.
        BrokenPipeError
            If the parent has ended.
        """
        with self._lock:
            if self._unusable:
                raise WorkerError(self._unusable)
            self._unusable = _INTERRUPTED
            try:
                for piece in _pieces(*encode(message)):
                    self._write(piece)
            except OSError as error:
                if error.errno != errno.EBADF:
                    raise
                self._unusable = _CLOSED
                raise WorkerError(_CLOSED) from error
            self._unusable = ""

    def _write(self, left: memoryview) -> None:
        while left:
            left = left[os.write(self._descriptor, left) :]

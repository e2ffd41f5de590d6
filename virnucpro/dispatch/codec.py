"""Tasks and results as bytes.

Numbers and short strings share one pickle, which is fast. Other values are pickled one by one, so
that an unreadable value affects no other task. Large arrays and bytes pass shared memory, with one
copy on each side. Values too large for that follow the frame's pickle without another copy: a
worker that copies gigabytes shows no progress.
"""

import pickle
import struct
import traceback
from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeGuard

from virnucpro.runtime.shared import Region, Ring

__all__ = [
    "LARGE",
    "NUMBERS",
    "TIMED_OUT",
    "Body",
    "Failed",
    "Packed",
    "RingWriter",
    "Stored",
    "as_body",
    "from_body",
    "is_short",
    "pack_answers",
    "pack_bodies",
    "pack_plain",
    "unpack",
    "unpack_answers",
]

LARGE = 1 << 16
"""Minimum size in bytes of a value that passes shared memory."""

NUMBERS = frozenset({bool, float, int, type(None)})
"""Types that are always short and can always be pickled."""

_PLAIN = NUMBERS | {bytes, str}

_PLAIN_TAG, _BODIES_TAG = b"P", b"B"

_ANSWERS = struct.Struct("=qd")
_HEAD_BYTES = struct.Struct("=q")

RingWriter = Callable[[Sequence[memoryview]], Sequence[Region] | None]
"""Copies pieces into shared memory; returns None, without a copy, if they do not all fit."""


class Failed(NamedTuple):
    """Replaces a result by its traceback; None for a task that timed out."""

    traceback: str | None


TIMED_OUT = Failed(None)


class Stored(NamedTuple):
    """A value in shared memory.

    Attributes
    ----------
    head
        The pickle without its large buffers, which are the pieces. Empty if the pickle itself is
        the piece; None if the piece is not a pickle but a value of type bytes.
    pieces
        Their places in the ring.
    """

    head: bytes | None
    pieces: Sequence[Region]


Body = bytes | memoryview | Stored | Failed
"""A pickle, its place, or the reason why there is none."""


class Packed(NamedTuple):
    """In a worker: the pickled form of a result."""

    body: Body


def is_short(value: object) -> bool:
    """Return whether a value is a short string or bytes."""
    return isinstance(value, str | bytes) and type(value) in _PLAIN and len(value) < LARGE


def pack_plain(values: Sequence[object]) -> bytes | None:
    """Pickle plain values together; return None if one is large or of another type."""
    types = set(map(type, values))
    if types <= NUMBERS or (
        types <= _PLAIN and all(type(value) in NUMBERS or is_short(value) for value in values)
    ):
        return _PLAIN_TAG + pickle.dumps(values, 5)
    return None


def as_body(value: object, place: RingWriter) -> Body:
    """Pickle one value; return `Failed` if that raises."""
    try:
        return _as_body(value, place)
    except Exception:  # noqa: BLE001 - pickling runs the user's code, which may raise anything
        return Failed(traceback.format_exc())


def _as_body(value: object, place: RingWriter) -> Body:
    if type(value) is bytes and len(value) >= LARGE:
        return _stored(None, [memoryview(value)], place) or pickle.dumps(value, 5)
    large: list[memoryview] = []

    def stays_inside(buffer: pickle.PickleBuffer) -> bool:
        raw = buffer.raw()
        if raw.nbytes >= LARGE:
            large.append(raw)
        return raw.nbytes < LARGE

    head = pickle.dumps(value, 5, buffer_callback=stays_inside)
    if large:
        return _stored(head, large, place) or pickle.dumps(value, 5)
    if len(head) >= LARGE:
        return _stored(b"", [memoryview(head)], place) or head
    return head


def _stored(head: bytes | None, pieces: Sequence[memoryview], place: RingWriter) -> Stored | None:
    regions = place(pieces)
    return None if regions is None else Stored(head, regions)


def pack_bodies(bodies: Sequence[Body]) -> list[bytes | memoryview]:
    """Return the parts of a frame, to be joined or sent one after the other.

    In the frame's pickle, a large body is replaced by its length in bytes; the bodies follow.
    """
    head = pickle.dumps([len(body) if _is_large(body) else body for body in bodies], 5)
    large = [body for body in bodies if _is_large(body)]
    return [_BODIES_TAG + _HEAD_BYTES.pack(len(head)) + head, *large]


def _is_large(body: Body) -> TypeGuard[bytes | memoryview]:
    return isinstance(body, bytes | memoryview) and len(body) >= LARGE


def unpack(frame: bytes | memoryview) -> tuple[bool, list[object]]:
    """Read a frame.

    Returns
    -------
    Whether the values are plain, and the plain values or the bodies; large ones as views of
    `frame`.
    """
    view = memoryview(frame)
    if view[:1] == _PLAIN_TAG:
        return True, pickle.loads(view[1:])  # noqa: S301 - written by this very program
    begin = 1 + _HEAD_BYTES.size
    end = begin + _HEAD_BYTES.unpack_from(view, 1)[0]
    bodies: list[object] = pickle.loads(view[begin:end])  # noqa: S301 - written by this very program
    for number, body in enumerate(bodies):
        if isinstance(body, int):
            bodies[number] = view[end : end + body]
            end += body
    return False, bodies


def from_body(body: bytes | memoryview | Stored, ring: Ring) -> object:
    """Unpickle a body, and release its place in shared memory.

    Raises
    ------
    Exception
        Any error of the unpickling, which runs the user's code.
    """
    if not isinstance(body, Stored):
        return pickle.loads(body)  # noqa: S301 - written by this very program
    try:
        if body.head is None:
            return ring.copy(body.pieces[0], bytes)
        if not body.head:
            with ring.view(body.pieces[0]) as view:
                return pickle.loads(view)  # noqa: S301 - written by this very program
        # Writable copies, as the original: the ring is reused.
        buffers = [ring.copy(piece, bytearray) for piece in body.pieces]
        return pickle.loads(body.head, buffers=buffers)  # noqa: S301 - written by this very program
    finally:
        ring.release(body.pieces[-1])


def pack_answers(count: int, seconds: float) -> bytes:
    """Return the header of a frame: number of its results, and their total duration in seconds."""
    return _ANSWERS.pack(count, seconds)


def unpack_answers(payload: memoryview) -> tuple[int, float, memoryview]:
    """Return the count, the seconds and the frame that follows a header of `pack_answers`."""
    count, seconds = _ANSWERS.unpack_from(payload)
    return count, seconds, payload[_ANSWERS.size :]

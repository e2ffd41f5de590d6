"""How tasks and results travel as bytes.

Plain numbers and short strings travel many in one pickle, which is fast. Anything else is pickled
one by one: what cannot be pickled or read back then harms no other task. Large arrays and bytes go
through shared memory, copied once on either side. What is too large for that travels behind the
frame's own pickle as it is: while gigabytes are copied, a worker can show no progress.
"""

import pickle
import struct
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

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
"""From this many bytes on, a value travels through shared memory."""

NUMBERS = frozenset({bool, float, int, type(None)})
"""Types that are always short and can always be pickled."""

_PLAIN = NUMBERS | {bytes, str}

_PLAIN_TAG, _BODIES_TAG = b"P", b"B"

_ANSWERS = struct.Struct("=qd")
_HEAD_BYTES = struct.Struct("=q")

RingWriter = Callable[[Sequence[memoryview]], Sequence[Region] | None]
"""Puts pieces into shared memory, all of them or, with None, not one."""


@dataclass(frozen=True, slots=True)
class Failed:
    """In place of a result: the traceback; None for a task that timed out."""

    traceback: str | None


TIMED_OUT = Failed(None)


@dataclass(frozen=True, slots=True)
class Stored:
    """A value in shared memory.

    Attributes
    ----------
    head
        The pickle without its large buffers, which are the pieces; empty where the pickle itself is
        the piece; None where the piece is no pickle but the value, of type bytes.
    pieces
        Where they are.
    """

    head: bytes | None
    pieces: tuple[Region, ...]


Body = bytes | memoryview | Stored | Failed
"""A pickle, where one is, or why there is none."""


@dataclass(frozen=True, slots=True)
class Packed:
    """In a worker, in place of a result: what travels."""

    body: Body


def is_short(value: object) -> bool:
    """Say whether a value is a short string or bytes."""
    return isinstance(value, str | bytes) and type(value) in _PLAIN and len(value) < LARGE


def pack_plain(values: Sequence[object]) -> bytes | None:
    """Pickle plain values together; None for others and for large ones."""
    types = set(map(type, values))
    if not types <= _PLAIN:
        return None
    if not types <= NUMBERS and not all(
        type(value) in NUMBERS or is_short(value) for value in values
    ):
        return None
    return _PLAIN_TAG + pickle.dumps(values, 5)


def as_body(value: object, place: RingWriter) -> Body:
    """Pickle one value, or say why that is impossible."""
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
    return None if regions is None else Stored(head, tuple(regions))


def pack_bodies(bodies: Sequence[Body]) -> list[bytes | memoryview]:
    """Put bodies in one frame; its parts, to be joined or sent one after the other.

    The head is a pickle that has in place of a large body its length in bytes; these follow.
    """
    head = pickle.dumps([_as_plain(body) for body in bodies], 5)
    large = [body for body in bodies if isinstance(body, bytes | memoryview) and _is_large(body)]
    return [_BODIES_TAG + _HEAD_BYTES.pack(len(head)) + head, *large]


def _is_large(body: bytes | memoryview) -> bool:
    return len(body) >= LARGE


def _as_plain(body: Body) -> object:
    match body:
        case Failed(text):
            return (text,)
        case Stored(head, pieces):
            return head, [tuple(piece) for piece in pieces]
        case _:
            return len(body) if _is_large(body) else body


def _from_plain(value: Any, large: memoryview) -> tuple[Body, memoryview]:  # noqa: ANN401 - what `_as_plain` made
    """Give a body, and what is left of the large ones."""
    if isinstance(value, int):
        return large[:value], large[value:]
    if isinstance(value, bytes):
        return value, large
    if len(value) == 1:
        return Failed(*value), large
    head, pieces = value
    return Stored(head, tuple(Region(*piece) for piece in pieces)), large


def unpack(frame: bytes | memoryview) -> tuple[bool, list[object]]:
    """Read a frame back.

    Returns
    -------
    Whether the values are plain, and these; bodies otherwise, the large ones as views of `frame`.
    """
    view = memoryview(frame)
    if view[:1] == _PLAIN_TAG:
        return True, pickle.loads(view[1:])  # noqa: S301 - written by this very program
    begin = 1 + _HEAD_BYTES.size
    end = begin + _HEAD_BYTES.unpack_from(view, 1)[0]
    values = pickle.loads(view[begin:end])  # noqa: S301 - written by this very program
    large = view[end:]
    bodies: list[object] = []
    for value in values:
        body, large = _from_plain(value, large)
        bodies.append(body)
    return False, bodies


def from_body(body: bytes | memoryview | Stored, ring: Ring) -> object:
    """Unpickle a body; one in shared memory is given back, whatever happens.

    Raises
    ------
    Exception
        Whatever reading the user's object back raises.
    """
    if not isinstance(body, Stored):
        return pickle.loads(body)  # noqa: S301 - written by this very program
    try:
        if body.head is None:
            return ring.copy(body.pieces[0], bytes)
        if not body.head:
            with ring.view(body.pieces[0]) as view:
                return pickle.loads(view)  # noqa: S301 - written by this very program
        # Copies that can be written to, as the original could: the ring is used again.
        buffers = [ring.copy(piece, bytearray) for piece in body.pieces]
        return pickle.loads(body.head, buffers=buffers)  # noqa: S301 - written by this very program
    finally:
        ring.release(body.pieces[-1])


def pack_answers(count: int, seconds: float) -> bytes:
    """Say how many results follow in a frame, and how long they took together."""
    return _ANSWERS.pack(count, seconds)


def unpack_answers(payload: memoryview) -> tuple[int, float, memoryview]:
    """Read what `pack_answers` wrote, and give the frame that follows."""
    count, seconds = _ANSWERS.unpack_from(payload)
    return count, seconds, payload[_ANSWERS.size :]

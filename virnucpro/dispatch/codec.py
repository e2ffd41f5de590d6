"""Encoding of tasks and results as bytes.

A frame here is one message with several values, not a reading frame. If all values of a frame are
numbers or short strings, the values are pickled together, which is fast. Otherwise each value is
pickled separately and is called a body. A body that cannot be unpickled affects only its own task.

Large arrays and bytes are sent through a ring buffer in shared memory. A value too large for the
ring buffer is appended to the frame without another copy: a worker cannot report progress while it
copies gigabytes.
"""

import pickle
import struct
import traceback
from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeGuard

from virnucpro.runtime.shared import Region, Ring

LARGE = 1 << 16
"""Minimum size in bytes of a value that is sent through shared memory."""

NUMBERS = frozenset({bool, float, int, type(None)})
"""Types whose values are always short and picklable."""

_PLAIN = NUMBERS | {bytes, str}

_PLAIN_TAG, _BODIES_TAG = b"P", b"B"

_ANSWERS = struct.Struct("=qd")
_HEAD_BYTES = struct.Struct("=q")

RingWriter = Callable[[Sequence[memoryview]], Region | None]
"""Function that copies pieces into shared memory; returns None if the space is too small."""


class Failed(NamedTuple):
    """Marker that replaces a value: the task failed, timed out, or could not be pickled.

    Attributes
    ----------
    traceback
        Traceback of the error; None if the task timed out.
    """

    traceback: str | None


TIMED_OUT = Failed(None)


class Stored(NamedTuple):
    """A large value whose bytes are in shared memory.

    Attributes
    ----------
    head
        Pickle of the value without its large buffers. Empty if the whole pickle is in shared
        memory; None if the value is of type bytes, which is stored without a pickle.
    region
        Place in shared memory of the large buffers, the whole pickle, or the bytes.
    """

    head: bytes | None
    region: Region


Body = bytes | memoryview | Stored | Failed
"""A pickle, the place of a pickle in shared memory, or an error instead of a value."""


class Encoded(NamedTuple):
    """A result that the worker has encoded but not sent yet."""

    body: Body


def is_short(value: object) -> bool:
    """Return whether a value is a str or bytes object with a length below `LARGE` (65,536)."""
    return isinstance(value, str | bytes) and type(value) in _PLAIN and len(value) < LARGE


def pack_plain(values: Sequence[object]) -> bytes | None:
    """Encode all values together as one message (a frame).

    Return None if a value is not a number, a short string or short bytes.
    """
    types = set(map(type, values))
    if types <= NUMBERS or (
        types <= _PLAIN and all(type(value) in NUMBERS or is_short(value) for value in values)
    ):
        return _PLAIN_TAG + pickle.dumps(values, 5)
    return None


def as_body(value: object, place: RingWriter) -> Body:
    """Pickle one value separately, as a body; return `Failed` if pickling raises an error.

    The function `place` copies large buffers of the value into shared memory.
    """
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
    region = place(pieces)
    return None if region is None else Stored(head, region)


def pack_bodies(bodies: Sequence[Body]) -> list[bytes | memoryview]:
    """Encode bodies (pickled values) as one message; return the parts of the message in order.

    The first part is a pickle of all bodies; each large body is replaced by its length in bytes.
    The other parts are the large bodies.
    """
    head = pickle.dumps([len(body) if _is_large(body) else body for body in bodies], 5)
    large = [body for body in bodies if _is_large(body)]
    return [_BODIES_TAG + _HEAD_BYTES.pack(len(head)) + head, *large]


def _is_large(body: Body) -> TypeGuard[bytes | memoryview]:
    return isinstance(body, bytes | memoryview) and len(body) >= LARGE


def unpack(frame: bytes | memoryview) -> tuple[bool, list[object]]:
    """Decode a message (a frame) that `pack_plain` or `pack_bodies` encoded.

    Returns
    -------
    For a message of `pack_plain`: True and the values. For a message of `pack_bodies`: False and
    the bodies (pickled values). Decode each body with `from_body`. Large bodies share the memory
    of `frame`.
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
    """Return the value that `as_body` encoded; free the body's space in shared memory (`ring`).

    Raises
    ------
    Exception
        Any error that the user's classes raise during unpickling.
    """
    if not isinstance(body, Stored):
        return pickle.loads(body)  # noqa: S301 - written by this very program
    try:
        if body.head:
            # Writable copies, like the original buffers: the space in the ring is reused.
            buffers = map(bytearray, ring.views(body.region))
            return pickle.loads(body.head, buffers=buffers)  # noqa: S301 - written by this very program
        read = bytes if body.head is None else pickle.loads
        [value] = map(read, ring.views(body.region))
        return value
    finally:
        ring.release(body.region)


def pack_answers(count: int, seconds: float) -> bytes:
    """Encode the header of a message of results: their number and total processing seconds."""
    return _ANSWERS.pack(count, seconds)


def unpack_answers(payload: memoryview) -> tuple[int, float, memoryview]:
    """Split a message of results: return their number, their total seconds, and the frame."""
    count, seconds = _ANSWERS.unpack_from(payload)
    return count, seconds, payload[_ANSWERS.size :]

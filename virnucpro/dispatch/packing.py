"""How tasks and results travel as bytes.

Plain numbers and strings travel many in one pickle, which is fast. Anything else is pickled one by
one: what cannot be pickled or read back then harms no other task.
"""

import pickle
import struct
import traceback
from collections.abc import Sequence
from dataclasses import dataclass

from virnucpro.runtime.shared import Region, Ring

__all__ = [
    "LARGE",
    "PLAIN",
    "TIMED_OUT",
    "Body",
    "Failed",
    "Pickled",
    "as_body",
    "from_body",
    "pack_answers",
    "pack_bodies",
    "pack_plain",
    "unpack",
    "unpack_answers",
]

LARGE = 1 << 16
"""From this many bytes on, a pickle travels through shared memory."""

PLAIN = frozenset({bool, bytes, float, int, str, type(None)})
"""Types that can always be pickled, whatever the value."""

_PLAIN_TAG, _BODIES_TAG = b"P", b"B"

_ANSWERS = struct.Struct("=qd")

_dumps = pickle.dumps


@dataclass(frozen=True, slots=True)
class Failed:
    """In a worker, in place of a result: the traceback; None for a task that timed out."""

    traceback: str | None


TIMED_OUT = Failed(None)


@dataclass(frozen=True, slots=True)
class Pickled:
    """In a worker, in place of a result: its pickle."""

    data: bytes


Body = bytes | Region | Failed
"""A pickle, where one is in shared memory, or why there is none."""


def pack_plain(values: Sequence[object]) -> bytes | None:
    """Pickle plain values together; None for others and for large ones."""
    if not PLAIN.issuperset(map(type, values)):
        return None
    packed = _dumps(values, 5)
    return _PLAIN_TAG + packed if len(packed) < LARGE else None


def as_body(value: object) -> Body:
    """Pickle one value, or say why that is impossible."""
    if isinstance(value, Failed):
        return value
    if isinstance(value, Pickled):
        return value.data
    try:
        return _dumps(value, 5)
    except Exception:  # noqa: BLE001 - pickling runs the user's code, which may raise anything
        return Failed(traceback.format_exc())


def pack_bodies(bodies: Sequence[Body]) -> bytes:
    """Put bodies in one frame."""
    plain = [
        (body.traceback,)
        if isinstance(body, Failed)
        else tuple(body)
        if isinstance(body, tuple)
        else body
        for body in bodies
    ]
    return _BODIES_TAG + _dumps(plain, 5)


def unpack(frame: bytes | memoryview) -> tuple[bool, list[object]]:
    """Read a frame back.

    Returns
    -------
    Whether the values are plain, and these; bodies otherwise.
    """
    values = pickle.loads(frame[1:])  # noqa: S301 - written by this very program
    if frame[:1] == _PLAIN_TAG:
        return True, values
    return False, [_body(value) for value in values]


def _body(value: bytes | tuple[object, ...]) -> object:
    if isinstance(value, bytes):
        return value
    return Region(*value) if len(value) == 3 else Failed(*value)  # type: ignore[arg-type]


def from_body(body: bytes | Region, ring: Ring) -> object:
    """Unpickle a body; one in shared memory is given back, whatever happens.

    Raises
    ------
    Exception
        Whatever reading the user's object back raises.
    """
    if isinstance(body, bytes):
        return pickle.loads(body)  # noqa: S301 - written by this very program
    try:
        with ring.view(body) as view:
            return pickle.loads(view)  # noqa: S301 - written by this very program
    finally:
        ring.release(body)


def pack_answers(count: int, seconds: float, frame: bytes) -> bytes:
    """Put before a frame of results how many they are, and how long they took together."""
    return _ANSWERS.pack(count, seconds) + frame


def unpack_answers(payload: memoryview) -> tuple[int, float, memoryview]:
    """Take apart what `pack_answers` joined."""
    count, seconds = _ANSWERS.unpack_from(payload)
    return count, seconds, payload[_ANSWERS.size :]

"""The way from the parent to one child: a private pipe that carries whole frames of bytes."""

import os
import struct
from collections import deque
from collections.abc import Iterator

from virnucpro.runtime.process import HandedOver

__all__ = ["Feed", "frames"]

_LENGTH = struct.Struct(">Q")
_READ_SIZE = 1 << 16


class Feed:
    """The parent's end. Never blocks: what the pipe does not take now waits in memory.

    Attributes
    ----------
    finishing
        Whether nothing more will be sent.
    """

    def __init__(self) -> None:
        self._reading, self._writing = os.pipe2(os.O_CLOEXEC)
        os.set_blocking(self._writing, False)
        self._waiting: deque[memoryview] = deque()
        self.finishing = False
        self.writes = 0

    @property
    def childs_end(self) -> HandedOver:
        """Arrives in the child as the descriptor that `frames` reads."""
        return HandedOver(self._reading)

    @property
    def descriptor(self) -> int:
        """What to wait for while there is something `waiting`."""
        return self._writing

    @property
    def waiting(self) -> bool:
        """Whether the pipe is full, and more must be written by `flush`."""
        return bool(self._waiting)

    def started(self) -> None:
        """Close the parent's copy of the child's end: the child's death is a broken pipe then."""
        os.close(self._reading)
        self._reading = -1

    def send(self, *parts: bytes | memoryview) -> None:
        """Send one frame, in parts that need not be joined."""
        length = sum(map(len, parts))
        head = _LENGTH.pack(length)
        if length < _READ_SIZE:
            self._waiting.append(memoryview(b"".join((head, *parts))))
        else:
            self._waiting.extend(map(memoryview, (head, *parts)))
        self.flush()

    def flush(self) -> None:
        """Write what the pipe takes; a dead child takes all."""
        try:
            while self._waiting:
                part = self._waiting[0]
                written = os.write(self._writing, part)
                self.writes += 1
                if written < len(part):
                    self._waiting[0] = part[written:]
                else:
                    self._waiting.popleft()
        except BlockingIOError:
            return
        except BrokenPipeError:  # its death is told by its process's descriptor
            self._waiting.clear()

    def finish(self) -> None:
        """Close now, or have it closed by whoever writes the last of what is `waiting`."""
        self.finishing = True
        if not self._waiting:
            self.close()

    def close(self) -> None:
        """Close at once."""
        if self._reading >= 0:
            self.started()
        if self._writing >= 0:
            os.close(self._writing)
            self._writing = -1
        self._waiting.clear()


def frames(descriptor: int) -> Iterator[bytes]:
    """Yield what the parent sends, until it closes its end or dies."""
    with os.fdopen(descriptor, "rb", buffering=_READ_SIZE) as stream:
        while len(head := stream.read(_LENGTH.size)) == _LENGTH.size:
            length = _LENGTH.unpack(head)[0]
            frame = stream.read(length)
            if len(frame) < length:
                return
            yield frame

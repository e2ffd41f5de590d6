"""Pipe for messages (byte strings) from the parent to one child process.

Each message is written as its length, followed by its bytes.
"""

import os
import struct
from collections import deque
from collections.abc import Iterator

from virnucpro.runtime.process import HandedOver

_LENGTH = struct.Struct(">Q")
_READ_SIZE = 1 << 16


class Feed:
    """The parent's end of a pipe to one child. No method blocks: unsent data stay in memory.

    Attributes
    ----------
    descriptor
        File descriptor that becomes writable when `flush` can continue; -1 after `close`.
    finishing
        Whether the caller has called `finish`, after which it sends no more messages.
    writes
        Number of successful writes to the pipe; the watchdog treats a change as progress.
    """

    def __init__(self) -> None:
        self._reading, self.descriptor = os.pipe2(os.O_CLOEXEC)
        os.set_blocking(self.descriptor, False)
        self._waiting: deque[memoryview] = deque()
        self.finishing = False
        self.writes = 0

    @property
    def childs_end(self) -> HandedOver:
        """The read end of the pipe, for the child, which passes it to `read_messages`."""
        return HandedOver(self._reading)

    @property
    def waiting(self) -> bool:
        """Whether unsent data are in memory. While this is true, the caller must call `flush`."""
        return bool(self._waiting)

    def close_childs_end(self) -> None:
        """Close the parent's copy of the read end. Call this after the child has started.

        While this copy is open, a write to the pipe of a dead child does not fail.
        """
        os.close(self._reading)
        self._reading = -1

    def send(self, *parts: bytes | memoryview) -> None:
        """Send one message to the child, joined from the given parts in order."""
        length = sum(map(len, parts))
        head = _LENGTH.pack(length)
        if length < _READ_SIZE:
            self._waiting.append(memoryview(b"".join((head, *parts))))
        else:
            self._waiting.extend(map(memoryview, (head, *parts)))
        self.flush()

    def flush(self) -> None:
        """Write the unsent data until the pipe is full; discard the data if the child is dead."""
        try:
            while self._waiting:
                part = self._waiting[0]
                written = os.write(self.descriptor, part)
                self.writes += 1
                if written < len(part):
                    self._waiting[0] = part[written:]
                else:
                    self._waiting.popleft()
        except BlockingIOError:
            return
        except BrokenPipeError:  # the process descriptor reports the child's death
            self._waiting.clear()

    def finish(self) -> None:
        """Record that no more messages follow; close the pipe if all data are sent.

        If data are unsent, the caller must call `flush` until `waiting` is false, then `close`.
        """
        self.finishing = True
        if not self._waiting:
            self.close()

    def close(self) -> None:
        """Close the pipe and discard unsent messages."""
        if self._reading >= 0:
            self.close_childs_end()
        if self.descriptor >= 0:
            os.close(self.descriptor)
            self.descriptor = -1
        self._waiting.clear()


def read_messages(descriptor: int) -> Iterator[bytes]:
    """Yield the parent's messages from a pipe until the parent closes it or dies; for the child."""
    with os.fdopen(descriptor, "rb", buffering=_READ_SIZE) as stream:
        while len(head := stream.read(_LENGTH.size)) == _LENGTH.size:
            length = _LENGTH.unpack(head)[0]
            message = stream.read(length)
            if len(message) < length:
                return
            yield message

"""In a worker: the results on their way to the parent."""

import os
import select
import threading
import time
from collections.abc import Callable, Sequence

from virnucpro.dispatch.packing import (
    LARGE,
    Body,
    Failed,
    as_body,
    pack_answers,
    pack_bodies,
    pack_plain,
)
from virnucpro.runtime.messages import Report
from virnucpro.runtime.outbox import Outbox
from virnucpro.runtime.shared import Region, Ring

__all__ = ["FLUSH_S", "WAITING", "Post", "Tag"]

FLUSH_S = 0.002
"""Seconds that a result may wait for others to travel with."""

WAITING = 1
"""Which of the shared numbers says that the worker waits for room in the ring."""

_SPACE_TICK_S = 0.01


class Tag:
    """First byte of what a worker tells."""

    READY = b"R"
    SETUP_FAILED = b"S"
    ANSWERS = b"A"
    CLEANUP_FAILED = b"C"


class Post:
    """Collects results and sends them in batches.

    A thread of its own sends what waits while a slow task goes on.

    Parameters
    ----------
    outbox
        The pipe.
    ring, words, space
        Where large results go, the numbers shared with the parent, and the event counter on which
        the parent tells of new room.
    """

    def __init__(self, outbox: Outbox, ring: Ring, words: memoryview, space: int) -> None:
        self.values: list[object] = []
        self.stopping: Callable[[], bool] = lambda: False
        self.flushed_at = time.monotonic()
        self._outbox = outbox
        self._ring = ring
        self._words = words
        self._space = space
        self._lock = threading.Lock()
        self._busy = threading.Event()
        threading.Thread(target=self._flush_late, name="virnucpro-post", daemon=True).start()

    def tell(self, tag: bytes, text: str = "") -> None:
        """Send a word about the worker itself."""
        self._outbox.send(Report(tag + text.encode("utf-8", "backslashreplace")))

    def begin(self) -> None:
        """Note that a batch of tasks begins."""
        self.flushed_at = time.monotonic()
        self._busy.set()

    def end(self) -> None:
        """Send the rest of a batch's results."""
        self._busy.clear()
        self.flush()

    def flush(self) -> None:
        """Send what there is, in order."""
        with self._lock:
            # The other thread appends meanwhile: only what was seen here is taken.
            values = self.values[:]
            if not values:
                return
            del self.values[: len(values)]
            now = time.monotonic()
            seconds, self.flushed_at = now - self.flushed_at, now
            plain = pack_plain(values)
            if plain is not None:
                self._send(len(values), seconds, plain)
            else:
                self._send_bodies(values, seconds)

    def _send(self, count: int, seconds: float, frame: bytes) -> None:
        self._outbox.send(Report(Tag.ANSWERS + pack_answers(count, seconds, frame)))

    def _send_bodies(self, values: Sequence[object], seconds: float) -> None:
        each = seconds / len(values)
        bodies: list[Body] = []
        for value in values:
            body = as_body(value)
            if isinstance(body, bytes) and len(body) >= LARGE and self._ring.fits(len(body)):
                region = self._ring.put(body)
                if region is None:
                    # Room comes only from what the parent has been told of.
                    self._send(len(bodies), each * len(bodies), pack_bodies(bodies))
                    bodies = []
                    body = self._wait_for_room(body)
                else:
                    body = region
            bodies.append(body)
        self._send(len(bodies), each * len(bodies), pack_bodies(bodies))

    def _wait_for_room(self, data: bytes) -> Body:
        while not self.stopping():
            self._words[WAITING] = 1
            region: Region | None = self._ring.put(data)
            if region is not None:
                self._words[WAITING] = 0
                return region
            # Race: the parent may have looked just before the word was set; hence the tick.
            if select.select([self._space], [], [], _SPACE_TICK_S)[0]:
                os.eventfd_read(self._space)
        return Failed("the run was stopped")

    def _flush_late(self) -> None:
        while True:
            self._busy.wait()
            time.sleep(FLUSH_S)
            if self.values and time.monotonic() - self.flushed_at > FLUSH_S:
                self.flush()

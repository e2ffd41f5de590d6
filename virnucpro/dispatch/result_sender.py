"""In a worker: the results on their way to the parent."""

import os
import pickle
import select
import threading
import time
from collections.abc import Callable, Sequence

from virnucpro.dispatch.codec import (
    Body,
    Failed,
    Packed,
    as_body,
    is_short,
    pack_answers,
    pack_bodies,
    pack_plain,
)
from virnucpro.runtime.messages import Report
from virnucpro.runtime.shared import Region, Ring
from virnucpro.runtime.worker_channel import WorkerChannel

__all__ = ["FLUSH_S", "WAITING", "ResultSender", "Tag"]

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


class ResultSender:
    """Collects results and sends them in batches.

    A thread of its own sends what waits while a slow task goes on.

    Parameters
    ----------
    outbox
        The pipe.
    ring, words, space
        Where large results go, the numbers shared with the parent, and the event counter on which
        the parent tells of new room.
    beat
        Called whenever a result gets on.
    """

    def __init__(
        self,
        outbox: WorkerChannel,
        ring: Ring,
        words: memoryview,
        space: int,
        beat: Callable[[], object],
    ) -> None:
        self.values: list[object] = []
        self.stopping: Callable[[], bool] = lambda: False
        self.flushed_at = time.monotonic()
        self._disowned = False
        self._outbox = outbox
        self._ring = ring
        self._words = words
        self._space = space
        self._beat = beat
        self._lock = threading.Lock()
        self._busy = threading.Event()
        threading.Thread(target=self._flush_late, name="virnucpro-post", daemon=True).start()

    def disown(self) -> None:
        """Note that this is a copy of the worker, made by a fork: nothing is its own to send."""
        self._disowned = True

    def leave_if_disowned(self) -> None:
        """End such a copy, whose task has returned: the worker itself answers."""
        if self._disowned:
            os._exit(0)

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
            frame = (
                pack_bodies([self._body(value) for value in values]) if plain is None else [plain]
            )
            self._beat()  # large results are copied once more before their first byte travels
            answers = (Tag.ANSWERS, pack_answers(len(values), seconds), *frame)
            self._outbox.send(Report(b"".join(answers)))

    def pack(self, result: object) -> object:
        """Give what stands for a result until it travels.

        It is pickled, and copied, here and now: what the worker does with it later is its own, and
        a crash in pickling is that of the task that is running.
        """
        if is_short(result) or isinstance(result, Failed):
            return result
        self._beat()
        return Packed(as_body(result, self._place))

    def _body(self, value: object) -> Body:
        if isinstance(value, Packed):
            return value.body
        return value if isinstance(value, Failed) else pickle.dumps(value, 5)

    def _place(self, pieces: Sequence[memoryview]) -> Sequence[Region] | None:
        """Put pieces into the ring, as soon as there is room."""
        if not self._ring.fits(pieces):
            return None
        regions: Sequence[Region] | None = self._ring.put(pieces)
        if regions is None:
            self.flush()  # room comes only from what the parent has been told of
            regions = self._wait_for_room(pieces)
        return regions

    def _wait_for_room(self, pieces: Sequence[memoryview]) -> Sequence[Region] | None:
        while not self.stopping():
            self._words[WAITING] = 1
            regions = self._ring.put(pieces)
            if regions is not None:
                self._words[WAITING] = 0
                return regions
            # Race: the parent may have looked just before the word was set; hence the tick.
            if select.select([self._space], [], [], _SPACE_TICK_S)[0]:
                os.eventfd_read(self._space)
        return None

    def _flush_late(self) -> None:
        while True:
            self._busy.wait()
            time.sleep(FLUSH_S)
            if self.values and time.monotonic() - self.flushed_at > FLUSH_S:
                self.flush()

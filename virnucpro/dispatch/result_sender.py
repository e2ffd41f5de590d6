"""Sends the results of a worker to the parent process."""

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
"""Maximum seconds that a result waits for further results of its batch."""

WAITING = 1
"""Index of the shared number that is 1 while the worker waits for space in the ring."""

_SPACE_TICK_S = 0.01


class Tag:
    """First byte of a message from a worker, which defines the type of the message."""

    READY = b"R"
    SETUP_FAILED = b"S"
    ANSWERS = b"A"
    CLEANUP_FAILED = b"C"


class ResultSender:
    """Collects results and sends them in batches.

    A separate thread sends finished results during a slow task.

    Parameters
    ----------
    channel
        The pipe to the parent.
    ring
        Ring buffer in shared memory for large results.
    words
        Integers in shared memory; one integer shows whether the worker waits for space in the ring.
    space
        Descriptor through which the parent signals free space in the ring.
    beat
        Function that records progress; it is called at each step of sending a result.
    """

    def __init__(
        self,
        channel: WorkerChannel,
        ring: Ring,
        words: memoryview,
        space: int,
        beat: Callable[[], object],
    ) -> None:
        self.values: list[object] = []
        self.stopping: Callable[[], bool] = lambda: False
        self.flushed_at = time.monotonic()
        self._disowned = False
        self._channel = channel
        self._ring = ring
        self._words = words
        self._space = space
        self._beat = beat
        self._lock = threading.Lock()
        self._busy = threading.Event()
        threading.Thread(target=self._flush_late, name="virnucpro-post", daemon=True).start()

    def disown(self) -> None:
        """Mark this process as a fork of the worker, which must not send results."""
        self._disowned = True

    def leave_if_disowned(self) -> None:
        """Exit this process if it is a fork of the worker; only the worker itself sends results."""
        if self._disowned:
            os._exit(0)

    def report(self, tag: bytes, text: str = "") -> None:
        """Send a message about the worker's state, with an optional error text."""
        self._channel.send(Report(tag + text.encode("utf-8", "backslashreplace")))

    def begin(self) -> None:
        """Record the start of a batch of tasks; until `end`, a thread sends finished results."""
        self.flushed_at = time.monotonic()
        self._busy.set()

    def end(self) -> None:
        """Send the remaining results at the end of a batch of tasks."""
        self._busy.clear()
        self.flush()

    def flush(self) -> None:
        """Send all finished results in the order of the tasks."""
        with self._lock:
            # The other thread may append at the same time: remove only the copied values.
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
            self._beat()  # large results are copied once more before their first byte is sent
            answers = (Tag.ANSWERS, pack_answers(len(values), seconds), *frame)
            self._channel.send(Report(b"".join(answers)))

    def pack(self, result: object) -> object:
        """Prepare a result for sending; return short strings, short bytes and `Failed` unchanged.

        Any other result is pickled immediately and returned as `Packed`. Later changes of the
        result then have no effect, and a crash during pickling is attributed to the right task.
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
        """Copy `pieces` into the ring buffer in shared memory; wait for space if necessary.

        Return the regions of the ring buffer that contain the copies. Return None if the pieces are
        too large or the run stops.
        """
        if not self._ring.fits(pieces):
            return None
        regions: Sequence[Region] | None = self._ring.put(pieces)
        if regions is None:
            self.flush()  # the parent frees only the space of results that it has received
            regions = self._wait_for_room(pieces)
        return regions

    def _wait_for_room(self, pieces: Sequence[memoryview]) -> Sequence[Region] | None:
        while not self.stopping():
            self._words[WAITING] = 1
            regions = self._ring.put(pieces)
            if regions is not None:
                self._words[WAITING] = 0
                return regions
            # Race: the parent may check just before the number is set, so the wait is short.
            if select.select([self._space], [], [], _SPACE_TICK_S)[0]:
                os.eventfd_read(self._space)
        return None

    def _flush_late(self) -> None:
        while True:
            self._busy.wait()
            time.sleep(FLUSH_S)
            if self.values and time.monotonic() - self.flushed_at > FLUSH_S:
                self.flush()

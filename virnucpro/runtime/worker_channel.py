"""The worker's end of its private pipe."""

import os
import pickle
import threading
import time

from virnucpro.errors import WorkerError
from virnucpro.runtime.messages import Mark, Message, Progress, Report, encode

__all__ = ["PROGRESS_INTERVAL_S", "WorkerChannel"]

PROGRESS_INTERVAL_S = 0.1
"""Shortest time in seconds between two progress messages of a worker."""


class WorkerChannel:
    """What a worker's function gets as its ``results_queue``.

    No other process writes into this pipe and no lock is shared with one: whatever happens to this
    worker cannot block another. The worker's own threads may all use it.

    Parameters
    ----------
    descriptor
        File descriptor of the pipe's writing end, in blocking mode.
    """

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        # Re-entrant: a signal handler that sends in the middle of a send gets an error, not a
        # deadlock.
        self._lock = threading.RLock()
        self._torn = False
        self._next_progress = -float("inf")
        self._held_back: Progress | None = None

    def put(self, payload: object) -> None:
        """Send a result of any size.

        Raises
        ------
        Exception
            Whatever pickling `payload` raises; nothing is sent then.
        """
        # Plain pickle: multiprocessing's own would send tensors as handles that die with this
        # process.
        self.send(Report(pickle.dumps(payload, protocol=pickle.HIGHEST_PROTOCOL)))

    def progress(self, done: int, total: int) -> None:
        """Say that `done` of `total` rows are done. Cheap: call it as often as it suits.

        At most one message every `PROGRESS_INTERVAL_S` travels; the last word always does.
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
        """Say on which piece of work this worker begins: should it die, it died of that, or in it.

        Every mark travels at once: some 5 microseconds.
        """
        self.send(Mark(place))

    def flush_progress(self) -> None:
        """Send the progress that was held back for being too soon, if any."""
        message, self._held_back = self._held_back, None
        if message is not None:
            self.send(message)

    def send(self, message: Message) -> None:
        """Send one message; return when the parent has it or the kernel keeps it for the parent.

        Raises
        ------
        WorkerError
            When an earlier message was cut short (a signal's handler raised in the middle).
        BrokenPipeError
            When the parent is gone.
        """
        with self._lock:
            if self._torn:
                raise WorkerError(
                    "an earlier message of this worker was interrupted half-way, so nothing more "
                    "can be sent: do not raise from signal handlers while results are being put."
                )
            self._torn = True
            for part in encode(message):
                self._write(part)
            self._torn = False

    def _write(self, part: bytes) -> None:
        left = memoryview(part)
        while left:
            left = left[os.write(self._descriptor, left) :]

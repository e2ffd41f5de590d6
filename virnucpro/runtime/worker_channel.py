"""Sending of results and progress from a worker to its parent, through a pipe."""

import os
import pickle
import threading
import time

from virnucpro.errors import WorkerError
from virnucpro.runtime.messages import Mark, Message, Progress, Report, encode

__all__ = ["PROGRESS_INTERVAL_S", "WorkerChannel"]

PROGRESS_INTERVAL_S = 0.1
"""Minimum seconds between two progress messages of a worker."""


class WorkerChannel:
    """The ``results_queue`` argument of a worker function.

    Each worker has its own pipe and lock, so it cannot block other workers. All methods are
    thread-safe.

    Parameters
    ----------
    descriptor
        File descriptor of the pipe's write end, in blocking mode.
    """

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        # Re-entrant: a signal handler that sends during a send gets an error, not a deadlock.
        self._lock = threading.RLock()
        self._torn = False
        self._next_progress = -float("inf")
        self._held_back: Progress | None = None

    def put(self, payload: object) -> None:
        """Send a result of any size.

        Raises
        ------
        Exception
            If `payload` cannot be pickled; nothing is sent.
        """
        # Plain pickle: multiprocessing sends tensors as handles, invalid after this process ends.
        self.send(Report(pickle.dumps(payload, protocol=pickle.HIGHEST_PROTOCOL)))

    def progress(self, done: int, total: int) -> None:
        """Report that `done` of `total` rows are computed. Frequent calls are cheap.

        At most one message per `PROGRESS_INTERVAL_S` is sent. The last message is always sent.
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
        """Report the start of the piece of work `place`.

        If this worker dies, the parent treats this piece as the possible cause. The message is sent
        immediately; a call takes about 5 microseconds.
        """
        self.send(Mark(place))

    def flush_progress(self) -> None:
        """Send the last progress message if it was not sent yet."""
        message, self._held_back = self._held_back, None
        if message is not None:
            self.send(message)

    def send(self, message: Message) -> None:
        """Send one message; return when all its bytes are in the pipe.

        Raises
        ------
        WorkerError
            If an earlier message is incomplete, because a signal handler raised an exception.
        BrokenPipeError
            If the parent has ended.
        """
        with self._lock:
            if self._torn:
                raise WorkerError(
                    "a signal handler interrupted an earlier message of this worker; further "
                    "messages cannot be sent. Do not raise exceptions from signal handlers in "
                    "worker functions."
                )
            self._torn = True
            for part in encode(message):
                self._write(part)
            self._torn = False

    def _write(self, part: bytes) -> None:
        left = memoryview(part)
        while left:
            left = left[os.write(self._descriptor, left) :]

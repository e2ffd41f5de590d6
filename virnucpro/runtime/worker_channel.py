"""The worker's end of its private pipe."""

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
    """The ``results_queue`` argument of a worker's function.

    No other process writes into this pipe or shares its lock, so this worker cannot block another.
    Safe for all threads of the worker.

    Parameters
    ----------
    descriptor
        File descriptor of the pipe's writing end, in blocking mode.
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
            Any error of pickling `payload`; nothing is sent then.
        """
        # Plain pickle: multiprocessing's own sends tensors as handles, invalid after this process.
        self.send(Report(pickle.dumps(payload, protocol=pickle.HIGHEST_PROTOCOL)))

    def progress(self, done: int, total: int) -> None:
        """Report that `done` of `total` rows are done. Frequent calls are cheap.

        At most one message per `PROGRESS_INTERVAL_S` is sent, and always the last one.
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
        """Report the start of a piece of work, which is charged if this worker dies.

        Every mark is sent at once, in about 5 microseconds.
        """
        self.send(Mark(place))

    def flush_progress(self) -> None:
        """Send the last progress if it was delayed."""
        message, self._held_back = self._held_back, None
        if message is not None:
            self.send(message)

    def send(self, message: Message) -> None:
        """Send one message; return when it is in the pipe.

        Raises
        ------
        WorkerError
            If an earlier message is incomplete because a signal handler raised.
        BrokenPipeError
            If the parent has ended.
        """
        with self._lock:
            if self._torn:
                raise WorkerError(
                    "an earlier message of this worker is incomplete, so no more can be sent: do "
                    "not raise from signal handlers while results are put."
                )
            self._torn = True
            for part in encode(message):
                self._write(part)
            self._torn = False

    def _write(self, part: bytes) -> None:
        left = memoryview(part)
        while left:
            left = left[os.write(self._descriptor, left) :]

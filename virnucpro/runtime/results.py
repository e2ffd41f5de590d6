"""Reports of all workers, in order of arrival."""

import pickle
import queue
import threading
from collections import deque
from typing import Any

from virnucpro.errors import WorkerError

__all__ = ["ResultsQueue"]


class ResultsQueue:
    """Reports of the workers, kept in memory until they are taken.

    A report is unpickled by the thread that takes it, so an unreadable one affects no other.
    """

    def __init__(self) -> None:
        self._reports: deque[tuple[int, bytes]] = deque()
        self._senders = 0
        self._changed = threading.Condition()

    def get(self, block: bool = True, timeout: float | None = None) -> Any:  # noqa: ANN401, FBT001, FBT002 - the signature of queue.Queue
        """Take the next report.

        Parameters
        ----------
        block
            Whether to wait for one while a worker can still send it.
        timeout
            Longest wait in seconds.

        Raises
        ------
        queue.Empty
            If there is none in time, or no worker is left.
        WorkerError
            If the report cannot be unpickled; it is dropped.
        """
        with self._changed:
            if block:
                self._changed.wait_for(lambda: self._reports or not self._senders, timeout)
            if not self._reports:
                raise queue.Empty
            rank, payload = self._reports.popleft()
        return _unpickle(rank, payload)

    def get_nowait(self) -> Any:  # noqa: ANN401 - workers send what they like
        """Take the next report, or raise `queue.Empty`."""
        return self.get(block=False)

    def empty(self) -> bool:
        """Return whether there is no report."""
        return not self._reports

    def qsize(self) -> int:
        """Return the number of reports."""
        return len(self._reports)

    def take_all(self) -> list[Any]:
        """Take all reports that have arrived.

        Raises
        ------
        WorkerError
            If one cannot be unpickled. It is dropped; a further call returns the others.
        """
        with self._changed:
            taken, self._reports = self._reports, deque()
        reports = []
        for number, (rank, payload) in enumerate(taken):
            try:
                reports.append(_unpickle(rank, payload))
            except WorkerError:
                del taken[number]
                with self._changed:
                    self._reports.extendleft(reversed(taken))
                raise
        return reports

    def add(self, rank: int, payload: bytes) -> None:
        """Append a pickled report of the worker `rank`."""
        with self._changed:
            self._reports.append((rank, payload))
            self._changed.notify_all()

    def add_senders(self, count: int) -> None:
        """Change the number of workers that can send reports by `count`."""
        with self._changed:
            self._senders += count
            self._changed.notify_all()


def _unpickle(rank: int, payload: bytes) -> Any:  # noqa: ANN401 - workers send what they like
    try:
        return pickle.loads(payload)  # noqa: S301 - written by a worker of this very process
    except Exception as error:
        raise WorkerError(
            f"a report of worker {rank} ({len(payload):,} bytes) cannot be unpickled: "
            f"{type(error).__name__}: {error}. Send plain data: dicts, lists, strings, numbers."
        ) from error

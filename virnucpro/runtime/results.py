"""Queue of what the workers of a coordinator report."""

import pickle
import queue
import threading
from collections import deque
from typing import Any

from virnucpro.errors import WorkerError


class ResultsQueue:
    """Queue of the workers' reports, in memory.

    A report is unpickled only when a caller gets it, so an invalid report affects no other report.
    """

    def __init__(self) -> None:
        self._reports: deque[tuple[int, bytes]] = deque()
        self._senders = 0
        self._changed = threading.Condition()

    def get(self, block: bool = True, timeout: float | None = None) -> Any:  # noqa: ANN401, FBT001, FBT002 - the signature of queue.Queue
        """Remove and return the next report.

        Parameters
        ----------
        block
            Whether to wait for a report if the queue is empty and a worker is alive.
        timeout
            Maximum wait in seconds; None for no limit.

        Raises
        ------
        queue.Empty
            If no report arrives within `timeout`, or the queue is empty and all workers have ended.
        WorkerError
            If the report cannot be unpickled. The report is removed.
        """
        with self._changed:
            if block:
                self._changed.wait_for(lambda: self._reports or not self._senders, timeout)
            if not self._reports:
                raise queue.Empty
            rank, payload = self._reports.popleft()
        return _unpickle(rank, payload)

    def get_nowait(self) -> Any:  # noqa: ANN401 - workers send what they like
        """Remove and return the next report; raise `queue.Empty` if there is no report."""
        return self.get(block=False)

    def empty(self) -> bool:
        """Return whether the queue is empty."""
        return not self._reports

    def qsize(self) -> int:
        """Return the number of reports in the queue."""
        return len(self._reports)

    def take_all(self) -> list[Any]:
        """Remove and return all reports that have arrived.

        Raises
        ------
        WorkerError
            If a report cannot be unpickled. It is removed; the next call returns the other reports.
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
        """Append a pickled report from the worker `rank`."""
        with self._changed:
            self._reports.append((rank, payload))
            self._changed.notify_all()

    def add_senders(self, count: int) -> None:
        """Add `count` to the number of living workers; a negative `count` records ended workers."""
        with self._changed:
            self._senders += count
            self._changed.notify_all()


def _unpickle(rank: int, payload: bytes) -> Any:  # noqa: ANN401 - workers send what they like
    try:
        return pickle.loads(payload)  # noqa: S301 - written by a worker of this very process
    except Exception as error:
        raise WorkerError(
            f"a result of worker {rank} ({len(payload):,} bytes) cannot be unpickled: "
            f"{type(error).__name__}: {error}. Send plain data: dicts, lists, strings, numbers."
        ) from error

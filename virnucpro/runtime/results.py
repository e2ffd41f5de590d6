"""The parent's end of all workers' pipes: the reports, in the order in which they came."""

import pickle
import queue
import threading
from collections import deque
from typing import Any

from virnucpro.errors import WorkerError

__all__ = ["ResultsQueue"]


class ResultsQueue:
    """Reports of the workers, kept in memory until somebody asks.

    Reports are unpickled by the thread that asks for them: an evil one harms nobody else.
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
            Whether to wait for one, as long as a worker lives that could send it.
        timeout
            Longest wait in seconds.

        Raises
        ------
        queue.Empty
            When there is none in time, or none can come any more.
        WorkerError
            When the report cannot be unpickled here; it is dropped.
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
        """Say whether no report waits."""
        return not self._reports

    def qsize(self) -> int:
        """Count the reports that wait."""
        return len(self._reports)

    def take_all(self) -> list[Any]:
        """Take every report that has come.

        Raises
        ------
        WorkerError
            When one cannot be unpickled here: that one is dropped, the others can be taken by the
            next call.
        """
        with self._changed:
            taken, self._reports = self._reports, deque()
        reports: list[Any] = []
        good: deque[tuple[int, bytes]] = deque()
        error: WorkerError | None = None
        for rank, payload in taken:
            try:
                reports.append(_unpickle(rank, payload))
            except WorkerError as unreadable:
                error = error or unreadable
            else:
                good.append((rank, payload))
        if error is not None:
            with self._changed:
                self._reports.extendleft(reversed(good))
            raise error
        return reports

    def add(self, rank: int, payload: bytes) -> None:
        """Append a pickled report of the worker `rank`."""
        with self._changed:
            self._reports.append((rank, payload))
            self._changed.notify_all()

    def add_senders(self, count: int) -> None:
        """Note that `count` more workers can send reports, or that ``-count`` fewer can."""
        with self._changed:
            self._senders += count
            self._changed.notify_all()


def _unpickle(rank: int, payload: bytes) -> Any:  # noqa: ANN401 - workers send what they like
    try:
        return pickle.loads(payload)  # noqa: S301 - written by a worker of this very process
    except Exception as error:
        raise WorkerError(
            f"a report of worker {rank} ({len(payload):,} bytes) cannot be read back: "
            f"{type(error).__name__}: {error}. Send plain data: dicts, lists, strings, numbers."
        ) from error

"""Choice of the worker for each task."""

import time
from collections.abc import Iterator, Mapping

from virnucpro.dispatch.stream import Stream, Tasks
from virnucpro.dispatch.worker_handle import State, WorkerHandle

__all__ = ["RESERVED_S", "RESERVED_TIMES", "TaskDealer"]

RESERVED_S = 1.0
"""Minimum seconds for which a task is reserved for a worker in its setup while others are idle."""

RESERVED_TIMES = 2.0
"""The reservation lasts this many times as long as the slowest finished setup."""


class TaskDealer:
    """Assigns the tasks of a stream to workers.

    Parameters
    ----------
    stream
        The tasks.
    workers
        The living workers; the owner changes this mapping.

    Attributes
    ----------
    slowest_setup
        Seconds; 0 until a worker is ready.
    """

    def __init__(self, stream: Stream, workers: Mapping[int, WorkerHandle]) -> None:
        self._stream = stream
        self._workers = workers
        self.slowest_setup = 0.0

    @property
    def has_takers(self) -> bool:
        """Whether `deal` would yield tasks now."""
        workers, stream = self._workers.values(), self._stream
        if stream.has_suspects:
            return any(worker.idle for worker in workers)
        return stream.has_more and any(worker.wanted for worker in workers)

    @property
    def waits(self) -> bool:
        """Whether workers are idle while tasks are reserved for others."""
        stream = self._stream
        idle = any(worker.idle for worker in self._workers.values())
        return stream.kept > 0 and not stream.has_more and idle

    def deal(self, most: int | None = None) -> Iterator[tuple[WorkerHandle, Tasks]]:
        """Yield each worker with its next tasks, at most `most`; send them before the next step."""
        for worker in list(self._workers.values()):
            if self._stream.has_suspects:  # first: busy workers get nothing more meanwhile
                if worker.idle:
                    yield worker, self._stream.take_suspect()
                    worker.alone = not worker.idle
                continue
            wanted = worker.wanted if most is None else min(most, worker.wanted)
            if wanted and self._stream.has_more:
                tasks = self._stream.take(wanted)
                if tasks[1]:
                    yield worker, tasks

    def deal_reserved(self) -> Iterator[tuple[WorkerHandle, Tasks]]:
        """Yield idle workers with the tasks reserved for workers with a slow setup."""
        surplus = self._stream.kept - self._punctual if self.waits else 0
        for worker in list(self._workers.values()):
            if surplus > 0 and worker.idle:
                surplus -= 1
                yield worker, self._stream.release()

    @property
    def _punctual(self) -> int:
        """Number of workers in a setup that takes no longer than expected."""
        latest = time.monotonic() - max(RESERVED_S, RESERVED_TIMES * self.slowest_setup)
        workers = self._workers.values()
        return sum(one.state is State.STARTING and one.since > latest for one in workers)

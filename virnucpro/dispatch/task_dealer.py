"""Choice of the worker for each task, also after the death of a worker."""

import time
from collections.abc import Iterator, Mapping

from virnucpro.dispatch.protocol import Event, TaskError, TaskRetried, TaskTimeout, WorkerDied
from virnucpro.dispatch.rules import Rules
from virnucpro.dispatch.stream import Stream, Tasks
from virnucpro.dispatch.worker_handle import State, WorkerHandle

__all__ = ["RESERVED_S", "RESERVED_TIMES", "TaskDealer"]

RESERVED_S = 1.0
"""Minimum seconds for which a task is reserved for a worker in its setup while others are idle."""

RESERVED_TIMES = 2.0
"""The reservation lasts this many times as long as the slowest finished setup."""


class TaskDealer:
    """Assigns the tasks of a stream to workers.

    One task is charged with the death of a worker; its other tasks are reassigned.

    Parameters
    ----------
    stream
        The tasks.
    workers
        The living workers; the owner changes this mapping.
    rules
        Limits and options of the run.

    Attributes
    ----------
    slowest_setup
        Seconds; 0 until a worker is ready.
    """

    def __init__(self, stream: Stream, workers: Mapping[int, WorkerHandle], rules: Rules) -> None:
        self._stream = stream
        self._workers = workers
        self._rules = rules
        self._attempts: dict[int, int] = {}
        self.slowest_setup = 0.0

    @property
    def has_takers(self) -> bool:
        """Whether `deal` would yield tasks now."""
        workers, stream = self._workers.values(), self._stream
        if stream.suspects:
            return any(worker.idle for worker in workers)
        return stream.has_more and any(worker.wanted for worker in workers)

    @property
    def waits(self) -> bool:
        """Whether workers are idle while tasks are reserved for others."""
        stream = self._stream
        idle = any(worker.idle for worker in self._workers.values())
        return bool(stream.reserved) and not stream.has_more and idle

    def deal(self, most: int | None = None) -> Iterator[tuple[WorkerHandle, Tasks]]:
        """Yield each worker with its next tasks, at most `most`; send them before the next step."""
        for worker in list(self._workers.values()):
            if self._stream.suspects:  # first: busy workers get nothing more meanwhile
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
        surplus = len(self._stream.reserved) - self._punctual if self.waits else 0
        for worker in list(self._workers.values()):
            if surplus > 0 and worker.idle:
                surplus -= 1
                yield worker, self._stream.release()

    def reassign(self, worker: WorkerHandle, code: int | str | None, text: str) -> Iterator[Event]:
        """Yield the worker's death, and the retry or answer of the charged task.

        Parameters
        ----------
        worker
            The dead worker, not yet closed.
        code, text
            Its exit code or signal's name, and its end in words.
        """
        unanswered, serial = worker.unanswered(), worker.begun
        begun = 0 if serial is None else serial - worker.answered
        if begun > 1 and worker.running is None:
            # It died between tasks, by one without a sent result: each is retried alone.
            self._stream.suspects.extend(unanswered[:begun])
            unanswered, serial = unanswered[begun:], None
        charged = None if serial is None else unanswered.pop(begun - 1)
        task_id = None if charged is None else charged[0]
        yield WorkerDied(worker.worker_id, code, task_id, text)
        if charged is not None and serial is not None:
            if self._rules.report_starts:
                yield from worker.starts(serial)
            yield from self._charge(worker, serial, charged, text)
        self._stream.put_back(unanswered)

    @property
    def _punctual(self) -> int:
        """Number of workers in a setup that takes no longer than expected."""
        latest = time.monotonic() - max(RESERVED_S, RESERVED_TIMES * self.slowest_setup)
        workers = self._workers.values()
        return sum(one.state is State.STARTING and one.since > latest for one in workers)

    def _charge(
        self, worker: WorkerHandle, serial: int, task: tuple[int, object], text: str
    ) -> Iterator[Event]:
        """Answer or retry the task in which a worker died."""
        task_id, ending = task[0], worker.ending
        if ending is not None and ending.serial != serial:
            # The late task was answered just before: this one is not charged.
            self._stream.put_back([task])
            return
        if ending is not None and ending.timed_out:
            yield TaskTimeout(task_id, self._rules.task_timeout or 0.0, worker.worker_id)
            return
        attempt = self._attempts.get(task_id, 0) + 1
        if attempt < self._rules.max_attempts:
            self._attempts[task_id] = attempt
            self._stream.suspects.extend([task])
            yield TaskRetried(task_id, attempt, text, worker.worker_id)
        else:
            text = f"{text} It was running this task, attempt {attempt}."
            yield TaskError(task_id, text, worker.worker_id)

"""Assignment of tasks to workers, and reassignment after the death of a worker."""

import time
from collections.abc import Iterator, Mapping

from virnucpro.dispatch.protocol import Event, TaskError, TaskRetried, TaskTimeout, WorkerDied
from virnucpro.dispatch.rules import Rules
from virnucpro.dispatch.stream import Stream, Tasks
from virnucpro.dispatch.worker_handle import State, WorkerHandle

__all__ = ["RESERVED_S", "RESERVED_TIMES", "TaskDealer"]

RESERVED_S = 1.0
"""Minimum seconds for which a task stays reserved for a worker in its setup."""

RESERVED_TIMES = 2.0
"""The reservation lasts this many times as long as the slowest finished setup."""


class TaskDealer:
    """Decides which worker gets which tasks of a stream; the caller sends the tasks.

    If a worker dies, its running task has failed one attempt; its other tasks are reassigned.

    Parameters
    ----------
    stream
        Source of the tasks.
    workers
        The workers that are alive, by id; the caller updates this mapping.
    rules
        Limits and options of the run.

    Attributes
    ----------
    slowest_setup
        Duration of the slowest finished setup in seconds; 0 before a setup is finished.
    """

    def __init__(self, stream: Stream, workers: Mapping[int, WorkerHandle], rules: Rules) -> None:
        self._stream = stream
        self._workers = workers
        self._rules = rules
        self._attempts: dict[int, int] = {}
        self.slowest_setup = 0.0

    @property
    def has_takers(self) -> bool:
        """Whether a task waits and a worker can accept this task now."""
        workers, stream = self._workers.values(), self._stream
        if stream.suspects:
            return any(worker.idle for worker in workers)
        return stream.has_more and any(worker.wanted for worker in workers)

    @property
    def has_idle_while_reserved(self) -> bool:
        """Whether a worker is idle while tasks are reserved for workers in their setup."""
        stream = self._stream
        idle = any(worker.idle for worker in self._workers.values())
        return bool(stream.reserved) and not stream.has_more and idle

    def deal(self, most: int | None = None) -> Iterator[tuple[WorkerHandle, Tasks]]:
        """Yield each worker that can accept tasks, together with the tasks for this worker.

        A worker gets at most `most` tasks; None for no limit. The caller must send the tasks
        before it requests the next worker.
        """
        for worker in list(self._workers.values()):
            if self._stream.suspects:  # retries first: busy workers get no new tasks
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
        """Yield each idle worker with a task that was reserved for a worker in a slow setup."""
        surplus = 0
        if self.has_idle_while_reserved:
            surplus = len(self._stream.reserved) - self._n_timely_setups
        for worker in list(self._workers.values()):
            if surplus > 0 and worker.idle:
                surplus -= 1
                yield worker, self._stream.release()

    def reassign(self, worker: WorkerHandle, code: int | str | None, text: str) -> Iterator[Event]:
        """Put the tasks of a dead worker back into the stream; yield the events of the death.

        The first event is `WorkerDied`. If a task was running, its retry or final answer follows.

        Parameters
        ----------
        worker
            The dead worker; call its `close` afterwards.
        code, text
            Exit code or name of the signal (None if unknown), and a text: how the worker ended.
        """
        unanswered, serial = worker.unanswered(), worker.begun
        begun = 0 if serial is None else serial - worker.answered
        if begun > 1 and worker.running is None:
            # A finished task without a sent result may be the cause: each is retried alone.
            self._stream.suspects.extend(unanswered[:begun])
            unanswered, serial = unanswered[begun:], None
        begun_task = None if serial is None else unanswered.pop(begun - 1)
        task_id = None if begun_task is None else begun_task[0]
        yield WorkerDied(worker.worker_id, code, task_id, text)
        if begun_task is not None and serial is not None:
            if self._rules.report_starts:
                yield from worker.start_events(serial)
            yield from self._retry_or_fail(worker, serial, begun_task, text)
        self._stream.put_back(unanswered)

    @property
    def _n_timely_setups(self) -> int:
        """Number of workers whose setup is running and is within the expected duration."""
        latest = time.monotonic() - max(RESERVED_S, RESERVED_TIMES * self.slowest_setup)
        workers = self._workers.values()
        return sum(one.state is State.STARTING and one.since > latest for one in workers)

    def _retry_or_fail(
        self, worker: WorkerHandle, serial: int, task: tuple[int, object], text: str
    ) -> Iterator[Event]:
        """Retry or answer the task that a worker was running when it died; yield the event.

        If the task did not cause the death, the task is reassigned and no event is yielded.
        """
        task_id, ending = task[0], worker.ending
        if ending is not None and ending.serial != serial:
            # The late task was answered just before the kill: this task is not the cause.
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
            text = f"{text} The worker was running this task (attempt {attempt})."
            yield TaskError(task_id, text, worker.worker_id)

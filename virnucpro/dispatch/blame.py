"""Search for the task that killed a worker."""

from collections.abc import Iterator

from virnucpro.dispatch.protocol import (
    Event,
    TaskError,
    TaskRetried,
    TaskTimeout,
    WorkerDied,
)
from virnucpro.dispatch.rules import Rules
from virnucpro.dispatch.stream import Stream
from virnucpro.dispatch.worker_handle import WorkerHandle

__all__ = ["Blame"]


class Blame:
    """Charges one task with the death of a worker, and reassigns the other tasks.

    Parameters
    ----------
    stream
        Receives the tasks without an answer.
    rules
        Limits and options of the run.
    """

    def __init__(self, stream: Stream, rules: Rules) -> None:
        self._stream = stream
        self._rules = rules
        self._attempts: dict[int, int] = {}

    def events(self, worker: WorkerHandle, code: int | str | None, text: str) -> Iterator[Event]:
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
            self._stream.suspect(unanswered[:begun])
            unanswered, serial = unanswered[begun:], None
        charged = None if serial is None else unanswered.pop(begun - 1)
        task_id = None if charged is None else charged[0]
        yield WorkerDied(worker.worker_id, code, task_id, text)
        if charged is not None and serial is not None:
            if self._rules.report_starts:
                yield from worker.starts(serial)
            yield from self._charge(worker, serial, charged, text)
        self._stream.put_back(unanswered)

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
            self._stream.suspect([task])
            yield TaskRetried(task_id, attempt, text, worker.worker_id)
        else:
            text = f"{text} It was running this task, attempt {attempt}."
            yield TaskError(task_id, text, worker.worker_id)

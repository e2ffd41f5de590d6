"""Stream of tasks: new tasks from the generator, and tasks to retry or reassign."""

import time
from collections import deque
from collections.abc import Iterable, Iterator

PULL_S = 0.002
"""Maximum seconds spent in the generator before the messages of workers are handled."""

Tasks = tuple[range | list[int], list[object]]
"""Tasks: their ids and their data."""


class Stream:
    """Reads tasks from a generator, numbers the tasks from 0, and limits the tasks in memory.

    A task is in memory from its reading until its answer is delivered to the user.

    Parameters
    ----------
    source
        Yields the tasks.
    bound
        Maximum number of tasks in memory.

    Attributes
    ----------
    reserved
        Tasks that are kept for workers that are still in their setup, one task per worker.
    suspects
        Tasks to retry because they may have killed their worker. A worker runs a suspect without
        other tasks in its queue.
    taken, delivered
        Numbers of tasks read from the source, and of tasks whose answer is delivered.
    exhausted
        Whether no more tasks are read: the source has ended or failed, or the run is shutting down.
    error
        The error that the source raised, or None.
    """

    def __init__(self, source: Iterable[object], bound: int) -> None:
        self._source: Iterator[object] = iter(source)
        self._bound = bound
        self._again: deque[tuple[int, object]] = deque()
        self.reserved: deque[tuple[int, object]] = deque()
        self.suspects: deque[tuple[int, object]] = deque()
        self.taken = 0
        self.delivered = 0
        self.exhausted = False
        self.error: Exception | None = None

    @property
    def in_flight(self) -> int:
        """Number of tasks in memory: read from the source, answer not delivered."""
        return self.taken - self.delivered

    @property
    def has_more(self) -> bool:
        """Whether a task can be taken: a task to reassign, or a new task from the source."""
        return bool(self._again) or (not self.exhausted and self.in_flight < self._bound)

    @property
    def over(self) -> bool:
        """Whether the stream has ended: no more tasks are read, all answers are delivered."""
        return self.exhausted and not self.in_flight

    def take(self, count: int) -> Tasks:
        """Remove up to `count` tasks from the stream; return their ids and their data.

        Tasks to reassign come first. If there are none, new tasks are read from the source.
        """
        if self._again:
            return _pop(self._again, count)
        return self._pull(count)

    def put_back(self, tasks: Iterable[tuple[int, object]]) -> None:
        """Put tasks at the front of the queue of tasks to reassign, in the given order."""
        self._again.extendleft(reversed(list(tasks)))

    def take_suspect(self) -> Tasks:
        """Remove one task from `suspects`; return its id and its data as two lists.

        The caller must send this task to a worker without other tasks.
        """
        return _pop(self.suspects)

    def set_aside(self, count: int) -> None:
        """Read up to `count` tasks from the source and keep them for workers in their setup."""
        ids, data = self._pull(count)
        self.reserved.extend(zip(ids, data, strict=True))

    def release(self) -> Tasks:
        """Remove one task that was reserved for a worker in its setup; return its id and its data.

        The id and the data are returned as two lists. Both are empty if no task is reserved.
        """
        return _pop(self.reserved)

    def take_all(self) -> Tasks:
        """Remove all tasks to retry, reserved tasks and tasks to reassign; return ids and data."""
        for waiting in (self.suspects, self.reserved):
            self._again.extend(waiting)
            waiting.clear()
        return _pop(self._again, len(self._again))

    def _pull(self, count: int) -> Tasks:
        first, data = self.taken, list[object]()
        count = min(count, self._bound - self.in_flight)
        if self.exhausted or count < 1:
            return [], []
        deadline = time.monotonic() + PULL_S
        try:
            for task in self._source:
                data.append(task)
                if len(data) >= count or (len(data) % 4 == 1 and time.monotonic() > deadline):
                    break
            else:
                self.exhausted = True
        except Exception as error:  # noqa: BLE001 - raised after all earlier tasks are answered
            self.exhausted = True
            self.error = error
        self.taken += len(data)
        return range(first, self.taken), data


def _pop(queue: deque[tuple[int, object]], count: int = 1) -> Tasks:
    """Remove up to `count` tasks from the queue; return their ids and their data as two lists."""
    pairs = [queue.popleft() for _ in range(min(count, len(queue)))]
    return [task_id for task_id, _ in pairs], [data for _, data in pairs]

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
        self.suspects: deque[tuple[int, object]] = deque()
        self.taken = 0
        self.delivered = 0
        self.exhausted = False
        self.error: Exception | None = None

    @property
    def in_flight(self) -> int:
        """Number of tasks in memory: read from the source, answer not delivered."""
        return self.taken - self.delivered

    def has_more(self, keep: int = 0) -> bool:
        """Return whether `take` may return a task."""
        keep = min(keep, self._bound - 1)
        return len(self._again) > keep or (not self.exhausted and self.in_flight < self._bound)

    @property
    def over(self) -> bool:
        """Whether the stream has ended: no more tasks are read, all answers are delivered."""
        return self.exhausted and not self.in_flight

    def take(self, count: int, keep: int = 0) -> Tasks:
        """Remove up to `count` tasks from the stream; return their ids and their data.

        Tasks to reassign come first. If there are none, new tasks are read from the source. The
        next `keep` tasks are left in the stream.
        """
        keep = min(keep, self._bound - 1)  # one task is always allowed
        if keep:
            self._again.extend(zip(*self._pull(count + keep - len(self._again)), strict=True))
        elif not self._again:
            return self._pull(count)
        self._again.rotate(-keep)
        tasks = _pop(self._again, min(count, len(self._again) - keep))
        self._again.rotate(keep)
        return tasks

    def put_back(self, tasks: Iterable[tuple[int, object]]) -> None:
        """Put tasks at the front of the queue of tasks to reassign, in the given order."""
        self._again.extendleft(reversed(list(tasks)))

    def take_suspect(self) -> Tasks:
        """Remove one task from `suspects`; return its id and its data as two lists.

        The caller must send this task to a worker without other tasks.
        """
        return _pop(self.suspects)

    def take_all(self) -> Tasks:
        """Remove all tasks to retry and to reassign; return ids and data."""
        self._again.extend(self.suspects)
        self.suspects.clear()
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

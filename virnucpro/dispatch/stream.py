"""The tasks: new ones of the generator, and those to be retried or reassigned."""

import time
from collections import deque
from collections.abc import Iterable, Iterator

__all__ = ["PULL_S", "Stream", "Tasks"]

PULL_S = 0.002
"""Maximum seconds in the generator before the workers' messages are handled."""

Tasks = tuple[range | list[int], list[object]]
"""Ids and data."""


class Stream:
    """Numbers the tasks from 0, with at most `bound` tasks taken and not delivered.

    Parameters
    ----------
    source
        Yields the tasks.
    bound
        Maximum number of tasks taken and not delivered.

    Attributes
    ----------
    reserved
        Tasks for workers in their setup.
    suspects
        Tasks to be retried, each alone on its worker.
    taken, delivered
        Numbers of tasks.
    exhausted
        Whether no more tasks are taken from the source: at its end, or set by the owner.
    error
        The error of the source, or None.
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
        """Number of tasks taken and not delivered."""
        return self.taken - self.delivered

    @property
    def has_more(self) -> bool:
        """Whether `take` would return a task now."""
        return bool(self._again) or (not self.exhausted and self.in_flight < self._bound)

    @property
    def over(self) -> bool:
        """Whether all tasks are delivered and the generator has ended."""
        return self.exhausted and not self.in_flight

    def take(self, count: int) -> Tasks:
        """Return up to `count` tasks; reassigned ones first."""
        if self._again:
            return _pop(self._again, count)
        return self._pull(count)

    def put_back(self, tasks: Iterable[tuple[int, object]]) -> None:
        """Queue tasks for reassignment, before all others, in their order."""
        self._again.extendleft(reversed(list(tasks)))

    def take_suspect(self) -> Tasks:
        """Return one task to be run alone."""
        return _pop(self.suspects)

    def set_aside(self, count: int) -> None:
        """Reserve `count` tasks for workers in their setup."""
        ids, data = self._pull(count)
        self.reserved.extend(zip(ids, data, strict=True))

    def release(self) -> Tasks:
        """Return a reserved task, if there is one."""
        return _pop(self.reserved)

    def take_all(self) -> Tasks:
        """Return all tasks that were taken and not sent to a worker."""
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
            for one in self._source:
                data.append(one)
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
    """Remove up to `count` tasks; return their ids and data."""
    pairs = [queue.popleft() for _ in range(min(count, len(queue)))]
    return [task_id for task_id, _ in pairs], [data for _, data in pairs]

"""The tasks: those that the generator has still to give, and those that must be done again."""

import time
from collections import deque
from collections.abc import Iterable, Iterator

__all__ = ["PULL_S", "Stream", "Tasks"]

PULL_S = 0.002
"""Seconds after which a slow generator is left alone for a moment, to see to the workers."""

Tasks = tuple[range | list[int], list[object]]
"""Ids and data."""


class Stream:
    """Numbers the tasks from 0 on, and never takes more than `bound` that are not delivered.

    Parameters
    ----------
    source
        Gives the tasks.
    bound
        Most tasks that were taken and not delivered.
    """

    def __init__(self, source: Iterable[object], bound: int) -> None:
        self._source: Iterator[object] = iter(source)
        self._bound = bound
        self._again: deque[tuple[int, object]] = deque()
        self._reserve: deque[tuple[int, object]] = deque()
        self._suspects: deque[tuple[int, object]] = deque()
        self.taken = 0
        self.delivered = 0
        self.exhausted = False
        self.error: Exception | None = None

    @property
    def in_flight(self) -> int:
        """Tasks that were taken and not delivered."""
        return self.taken - self.delivered

    @property
    def kept(self) -> int:
        """Tasks that were set aside and not released."""
        return len(self._reserve)

    @property
    def has_more(self) -> bool:
        """Whether `take` would give something now."""
        return bool(self._again) or (not self.exhausted and self.in_flight < self._bound)

    @property
    def has_suspects(self) -> bool:
        """Whether there are tasks to be done alone."""
        return bool(self._suspects)

    @property
    def over(self) -> bool:
        """Whether every task was delivered and none will come."""
        return self.exhausted and not self.in_flight

    def take(self, count: int) -> Tasks:
        """Give up to `count` tasks: those to be done again first."""
        if self._again:
            pairs = [self._again.popleft() for _ in range(min(count, len(self._again)))]
            return [task_id for task_id, _ in pairs], [data for _, data in pairs]
        return self._pull(count)

    def put_back(self, tasks: Iterable[tuple[int, object]]) -> None:
        """Have tasks done again, before all others, in their order."""
        self._again.extendleft(reversed(list(tasks)))

    def suspect(self, tasks: Iterable[tuple[int, object]]) -> None:
        """Have each of these tasks done again with no other one near it."""
        self._suspects.extend(tasks)

    def take_suspect(self) -> Tasks:
        """Give one of those."""
        task_id, data = self._suspects.popleft()
        return [task_id], [data]

    def set_aside(self, count: int) -> None:
        """Keep so many tasks for workers that are not ready yet."""
        ids, data = self._pull(count)
        self._reserve.extend(zip(ids, data, strict=True))

    def release(self) -> Tasks:
        """Give a task that was set aside, if there is one."""
        if not self._reserve:
            return [], []
        task_id, data = self._reserve.popleft()
        return [task_id], [data]

    def end(self) -> None:
        """Take nothing more from the generator."""
        self.exhausted = True

    def take_all(self) -> Tasks:
        """Give all tasks that were taken and that no worker has."""
        for waiting in (self._suspects, self._reserve):
            self._again.extend(waiting)
            waiting.clear()
        return self.take(len(self._again)) if self._again else ([], [])

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
        except Exception as error:  # noqa: BLE001 - raised once all that came before it is answered
            self.exhausted = True
            self.error = error
        self.taken += len(data)
        return range(first, self.taken), data

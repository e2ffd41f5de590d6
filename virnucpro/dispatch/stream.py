"""Stream of tasks: new tasks from the generator, and tasks to retry or reassign."""

from collections import deque
from collections.abc import Iterable, Iterator

NumberedTask = tuple[int, object]
"""A task: its id and its data."""


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
        self._returned: deque[NumberedTask] = deque()
        self.taken = 0
        self.delivered = 0
        self.exhausted = False
        self.error: Exception | None = None

    @property
    def in_flight(self) -> int:
        """Number of tasks in memory: read from the source, answer not delivered."""
        return self.taken - self.delivered

    @property
    def over(self) -> bool:
        """Whether the stream has ended: no more tasks are read, all answers are delivered."""
        return self.exhausted and not self.in_flight

    def take(self) -> NumberedTask | None:
        """Remove one task from the stream; return None if there is none now.

        Tasks to retry or reassign come first. If there are none, the source is read.
        """
        if self._returned:
            return self._returned.popleft()
        if self.exhausted or self.in_flight >= self._bound:
            return None
        try:
            data = next(self._source)
        except StopIteration:
            self.exhausted = True
            return None
        except Exception as error:  # noqa: BLE001 - raised after all earlier tasks are answered
            self.exhausted, self.error = True, error
            return None
        self.taken += 1
        return self.taken - 1, data

    def put_back(self, task: NumberedTask) -> None:
        """Add a task to retry or reassign; it is the next one."""
        self._returned.appendleft(task)

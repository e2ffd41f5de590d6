"""Size of the batches of a worker. Pure."""

__all__ = ["BATCH_S", "MOST", "SLOW_S", "Pace"]

BATCH_S = 0.01
"""Target duration of a batch in seconds."""

MOST = 512
"""Maximum number of tasks in a batch."""

SLOW_S = 0.05
"""Tasks longer than this, in seconds, are sent one by one, each after the last answer."""

_MEMORY = 0.7


class Pace:
    """Throughput of one worker, and the batch size that follows from it.

    Parameters
    ----------
    most
        Maximum number of tasks in a batch; 0 for single tasks, each after the last answer.
    """

    def __init__(self, most: int) -> None:
        self._alone = most == 0
        self._most = max(1, min(most, MOST))
        self._seconds: float | None = None

    def note(self, count: int, seconds: float) -> None:
        """Record that `count` tasks took `seconds` in total."""
        each = seconds / count
        if self._seconds is None or each > 10 * self._seconds:
            self._seconds = each
        else:
            self._seconds = _MEMORY * self._seconds + (1 - _MEMORY) * each

    @property
    def batch(self) -> int:
        """Number of tasks in a batch."""
        if self._seconds is None or self._seconds > SLOW_S:
            return 1
        return max(1, min(self._most, int(BATCH_S / max(self._seconds, 1e-9))))

    def wanted(self, outstanding: int) -> int:
        """Return the number of tasks to send to a worker with `outstanding` tasks.

        One batch runs and another waits. Slow tasks never wait behind each other.
        """
        batch = self.batch
        if self._alone or self._seconds is None or self._seconds > SLOW_S:
            return 0 if outstanding else 1
        return batch if outstanding <= batch else 0

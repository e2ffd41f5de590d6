"""How many tasks a worker gets at a time. Pure."""

__all__ = ["BATCH_S", "MOST", "SLOW_S", "Pace"]

BATCH_S = 0.01
"""Seconds of work that a batch should hold."""

MOST = 512
"""Most tasks in a batch."""

SLOW_S = 0.05
"""Tasks that take longer than so many seconds are handed out one by one, when asked for."""

_MEMORY = 0.7


class Pace:
    """How fast one worker's tasks go.

    Parameters
    ----------
    most
        Most tasks in a batch; 0 for no batches: a task only when the last one is answered.
    """

    def __init__(self, most: int) -> None:
        self._alone = most == 0
        self._most = max(1, min(most, MOST))
        self._seconds: float | None = None

    def note(self, count: int, seconds: float) -> None:
        """Take in that `count` tasks took `seconds` together."""
        each = seconds / count
        if self._seconds is None or each > 10 * self._seconds:
            self._seconds = each
        else:
            self._seconds = _MEMORY * self._seconds + (1 - _MEMORY) * each

    @property
    def batch(self) -> int:
        """How many tasks make a batch."""
        if self._seconds is None or self._seconds > SLOW_S:
            return 1
        return max(1, min(self._most, int(BATCH_S / max(self._seconds, 1e-9))))

    def wanted(self, outstanding: int) -> int:
        """Say how many tasks to send to a worker that has `outstanding` ones to do.

        One batch is worked on, another waits; slow tasks never wait behind each other.
        """
        batch = self.batch
        if self._alone or self._seconds is None or self._seconds > SLOW_S:
            return 0 if outstanding else 1
        return batch if outstanding <= batch else 0

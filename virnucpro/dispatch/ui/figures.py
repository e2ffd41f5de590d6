"""Numbers of a dashboard. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

__all__ = ["Figures", "clock", "duration"]


@dataclass(frozen=True, slots=True)
class Figures:
    """Progress of a run.

    Attributes
    ----------
    completed, failed, timeouts
        Tasks answered so far.
    expected
        Number of tasks of the run, or None if unknown.
    elapsed
        Seconds since the start of the run.
    """

    completed: int
    failed: int
    timeouts: int
    expected: int | None
    elapsed: float

    @classmethod
    def of(cls, stats: Mapping[str, Any], expected: int | None, elapsed: float) -> "Figures":
        """Return the numbers of a dispatcher's stats."""
        return cls(stats["completed"], stats["failed"], stats["timeouts"], expected, elapsed)

    @property
    def total(self) -> int:
        """Number of tasks answered so far."""
        return self.completed + self.failed + self.timeouts

    @property
    def whole(self) -> int:
        """Number of all tasks, as far as known."""
        return self.total if self.expected is None else max(self.expected, self.total)

    @property
    def rate(self) -> float:
        """Throughput in tasks per second."""
        return self.total / self.elapsed if self.elapsed > 0 else 0.0

    @property
    def left(self) -> float | None:
        """Estimated remaining seconds, or None if unknown."""
        if self.expected is None or not self.rate:
            return None
        return max(0, self.expected - self.total) / self.rate

    @property
    def progress(self) -> str:
        """Progress as text."""
        if self.expected is None:
            return f"{self.total:,} tasks"
        share = 100.0 * self.total / self.expected if self.expected else 100.0
        return f"{self.total:,} of {self.expected:,} tasks ({share:.1f} %)"

    @property
    def line(self) -> str:
        """All numbers in one line."""
        parts = [f"{self.progress}, {self.failed:,} failed, {self.timeouts:,} timed out"]
        parts.append(f"{clock(self.elapsed)} elapsed, {self.rate:,.1f} tasks/s")
        if self.left is not None:
            parts.append(f"{clock(self.left)} left")
        return "; ".join(parts)


def clock(seconds: float) -> str:
    """Format seconds as hours, minutes and seconds."""
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}"


def duration(seconds: float | None) -> str:
    """Format a short time in a suitable unit."""
    if seconds is None:
        return "-"
    if seconds < 0.001:
        return f"{seconds * 1e6:.0f} µs"
    return f"{seconds * 1e3:.0f} ms" if seconds < 1 else f"{seconds:.1f} s"

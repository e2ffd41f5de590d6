"""What a dashboard says in numbers. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

__all__ = ["Figures", "clock", "duration"]


@dataclass(frozen=True, slots=True)
class Figures:
    """How a run stands.

    Attributes
    ----------
    completed, failed, timeouts
        Tasks answered so far.
    expected
        How many there will be, or None.
    elapsed
        Seconds since the run began.
    """

    completed: int
    failed: int
    timeouts: int
    expected: int | None
    elapsed: float

    @classmethod
    def of(cls, stats: Mapping[str, Any], expected: int | None, elapsed: float) -> "Figures":
        """Take them from a dispatcher's stats."""
        return cls(stats["completed"], stats["failed"], stats["timeouts"], expected, elapsed)

    @property
    def total(self) -> int:
        """Tasks answered so far."""
        return self.completed + self.failed + self.timeouts

    @property
    def whole(self) -> int:
        """How many tasks there are, as far as anybody knows."""
        return self.total if self.expected is None else max(self.expected, self.total)

    @property
    def rate(self) -> float:
        """Tasks answered a second."""
        return self.total / self.elapsed if self.elapsed > 0 else 0.0

    @property
    def left(self) -> float | None:
        """Seconds that the rest will take at this rate, where that can be said."""
        if self.expected is None or not self.rate:
            return None
        return max(0, self.expected - self.total) / self.rate

    @property
    def progress(self) -> str:
        """How far it is, in words."""
        if self.expected is None:
            return f"{self.total:,} tasks"
        share = 100.0 * self.total / self.expected if self.expected else 100.0
        return f"{self.total:,} of {self.expected:,} tasks ({share:.1f} %)"

    @property
    def line(self) -> str:
        """All of it in one line."""
        parts = [f"{self.progress}, {self.failed:,} failed, {self.timeouts:,} timed out"]
        parts.append(f"{clock(self.elapsed)} elapsed, {self.rate:,.1f} tasks/s")
        if self.left is not None:
            parts.append(f"{clock(self.left)} left")
        return "; ".join(parts)


def clock(seconds: float) -> str:
    """Write seconds as hours, minutes and seconds."""
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}"


def duration(seconds: float | None) -> str:
    """Write a short time in a unit that suits it."""
    if seconds is None:
        return "-"
    if seconds < 0.001:
        return f"{seconds * 1e6:.0f} µs"
    return f"{seconds * 1e3:.0f} ms" if seconds < 1 else f"{seconds:.1f} s"

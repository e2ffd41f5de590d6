"""Time limits and options of a dispatcher's run."""

import math
from dataclasses import dataclass

__all__ = ["HARD_GRACE_S", "Rules"]

HARD_GRACE_S = 0.5
"""Seconds that a worker has to end a late task itself; then the parent kills the worker."""


@dataclass(frozen=True, slots=True)
class Rules:
    """Time limits and options of one run.

    Attributes
    ----------
    max_attempts
        Maximum number of attempts for a task if workers die while they run it.
    setup_timeout, cleanup_timeout, task_timeout
        Limits in seconds; None for no limit. After the last answer, `cleanup_timeout` also applies
        to unfinished setups.
    progress_timeout
        Maximum time in seconds that a worker with tasks makes no progress; None for no limit.
    one_at_a_time
        Whether a worker gets a task only after it has answered its previous task.
    fair
        Whether each worker that is still in its setup gets one of the first tasks.
    report_starts
        Whether the run yields `TaskStarted` events.

    Raises
    ------
    ValueError
        If `max_attempts` is below 1, or a time limit is not a number above 0.
    """

    max_attempts: int
    setup_timeout: float | None
    cleanup_timeout: float | None
    progress_timeout: float | None
    one_at_a_time: bool = False
    fair: bool = True
    report_starts: bool = False
    task_timeout: float | None = None

    def __post_init__(self) -> None:
        if self.max_attempts < 1:
            raise ValueError(f"max_attempts must be at least 1, not {self.max_attempts}.")
        for name in ("setup_timeout", "cleanup_timeout", "progress_timeout", "task_timeout"):
            seconds = getattr(self, name)
            # A comparison with NaN is never true.
            if seconds is not None and not 0 < seconds < math.inf:
                raise ValueError(
                    f"{name} must be a number of seconds above 0 or None for no limit, "
                    f"not {seconds!r}."
                )

    @property
    def task_limit(self) -> float | None:
        """Seconds from the start of a task until the parent kills the worker; None for no limit."""
        return None if self.task_timeout is None else self.task_timeout + HARD_GRACE_S

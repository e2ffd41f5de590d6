"""Limits and options of a dispatcher's run."""

from dataclasses import dataclass

__all__ = ["HARD_GRACE_S", "Rules"]

HARD_GRACE_S = 0.5
"""Seconds after a task's time limit in which the worker itself ends the task."""


@dataclass(frozen=True, slots=True)
class Rules:
    """Limits and options of one run.

    Attributes
    ----------
    max_attempts
        Maximum attempts at a task whose workers die.
    task_timeout, setup_timeout, cleanup_timeout
        Seconds, or None for no limit. After the last answer, `cleanup_timeout` holds for
        setups too.
    progress_timeout
        Longest time in seconds that a worker with tasks makes no progress; None for no limit.
    fair
        Whether a task is reserved for each worker in its setup.
    report_starts
        Whether the run yields `TaskStarted` events.
    one_at_a_time
        Whether a worker gets a task only after its answer to the last one.
    """

    max_attempts: int
    task_timeout: float | None
    setup_timeout: float | None
    cleanup_timeout: float | None
    progress_timeout: float | None
    fair: bool
    report_starts: bool
    one_at_a_time: bool = False

    @property
    def task_limit(self) -> float | None:
        """Seconds after which the parent ends a worker with a late task."""
        return None if self.task_timeout is None else self.task_timeout + HARD_GRACE_S

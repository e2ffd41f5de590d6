"""What happens in a run, as plain data."""

from dataclasses import dataclass

__all__ = [
    "Answer",
    "Answers",
    "CleanupFailed",
    "Event",
    "SetupFailed",
    "TaskError",
    "TaskRetried",
    "TaskStarted",
    "TaskSuccess",
    "TaskTimeout",
    "WorkerDied",
    "WorkerReady",
]


@dataclass(frozen=True, slots=True)
class WorkerReady:
    """A worker has set up, for the first time or in place of one that died."""

    worker_id: int


@dataclass(frozen=True, slots=True)
class TaskStarted:
    """A worker began on a task."""

    task_id: int
    worker_id: int


@dataclass(frozen=True, slots=True)
class TaskSuccess:
    """A task's result. Final."""

    task_id: int
    data: object
    worker_id: int


@dataclass(frozen=True, slots=True)
class TaskError:
    """Why a task has no result: a traceback, or how its worker died. Final.

    `worker_id` is None for a task that no worker was left for.
    """

    task_id: int
    error: str
    worker_id: int | None


@dataclass(frozen=True, slots=True)
class TaskTimeout:
    """A task took longer than `timeout` seconds and was ended. Final."""

    task_id: int
    timeout: float
    worker_id: int


@dataclass(frozen=True, slots=True)
class TaskRetried:
    """A worker died in a task, which is tried again: `attempt` counts the attempts so far."""

    task_id: int
    attempt: int
    error: str
    worker_id: int


@dataclass(frozen=True, slots=True)
class SetupFailed:
    """A worker could not be set up; it does no tasks."""

    gpu_id: int
    error: str
    worker_id: int


@dataclass(frozen=True, slots=True)
class CleanupFailed:
    """A worker that had done all its tasks did not end well."""

    gpu_id: int
    error: str
    worker_id: int


@dataclass(frozen=True, slots=True)
class WorkerDied:
    """A worker died before its work was done.

    Attributes
    ----------
    worker_id
        Who.
    exit
        Its exit code, or the name of the signal that killed it; None where nobody knows.
    task_id
        The task that it was running, or None for an idle one.
    how
        How it ended, in words, and what it said last.
    """

    worker_id: int
    exit: int | str | None
    task_id: int | None
    how: str


@dataclass(frozen=True, slots=True)
class Answers:
    """Results of several tasks of one worker: a `TaskSuccess` each, without the objects."""

    task_ids: range | list[int]
    data: list[object]
    worker_id: int


Answer = Answers | TaskSuccess | TaskError | TaskTimeout

Event = Answer | WorkerReady | TaskStarted | TaskRetried | SetupFailed | CleanupFailed | WorkerDied

"""The events of a run, as plain data, and the sorting of its answers. Pure."""

from collections.abc import Iterable, Iterator
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
    "in_order",
]


@dataclass(frozen=True, slots=True)
class WorkerReady:
    """A worker has finished its setup, at the start or after a restart."""

    worker_id: int


@dataclass(frozen=True, slots=True)
class TaskStarted:
    """A worker started a task."""

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
    """The traceback of a task, or how its worker died. Final.

    `worker_id` is None if no worker was left for the task.
    """

    task_id: int
    error: str
    worker_id: int | None


@dataclass(frozen=True, slots=True)
class TaskTimeout:
    """A task exceeded `timeout` seconds and was ended. Final."""

    task_id: int
    timeout: float
    worker_id: int


@dataclass(frozen=True, slots=True)
class TaskRetried:
    """A worker died in a task, which is retried: `attempt` counts the attempts so far."""

    task_id: int
    attempt: int
    error: str
    worker_id: int


@dataclass(frozen=True, slots=True)
class SetupFailed:
    """The setup of a worker failed permanently; it does no tasks."""

    gpu_id: int
    error: str
    worker_id: int


@dataclass(frozen=True, slots=True)
class CleanupFailed:
    """The cleanup of a worker failed, after all its tasks."""

    gpu_id: int
    error: str
    worker_id: int


@dataclass(frozen=True, slots=True)
class WorkerDied:
    """A worker died before its work was done.

    Attributes
    ----------
    worker_id
        The worker.
    exit
        Its exit code, or the name of the signal that killed it; None if unknown.
    task_id
        Its running task, or None if it was idle.
    how
        How it ended, in words, with its last error.
    """

    worker_id: int
    exit: int | str | None
    task_id: int | None
    how: str


@dataclass(frozen=True, slots=True)
class Answers:
    """Results of several tasks of one worker, in place of a `TaskSuccess` each."""

    task_ids: range | list[int]
    data: list[object]
    worker_id: int


Answer = Answers | TaskSuccess | TaskError | TaskTimeout

Event = Answer | WorkerReady | TaskStarted | TaskRetried | SetupFailed | CleanupFailed | WorkerDied


def in_order(events: Iterable[Event]) -> Iterator[Event]:
    """Yield answers in the order of their tasks, other events at once."""
    held: dict[int, Event] = {}
    turn = 0
    for event in events:
        if isinstance(event, Answers):
            for task_id, data in zip(event.task_ids, event.data, strict=True):
                held[task_id] = TaskSuccess(task_id, data, event.worker_id)
        elif isinstance(event, TaskSuccess | TaskError | TaskTimeout):
            held[event.task_id] = event
        else:
            yield event
        while turn in held:
            yield held.pop(turn)
            turn += 1

"""Events of a dispatcher's run as plain data, and a function that puts answers into task order."""

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
    """A task succeeded; this is its final answer. `data` is the result."""

    task_id: int
    data: object
    worker_id: int


@dataclass(frozen=True, slots=True)
class TaskError:
    """A task failed; this is its final answer.

    `error` is a traceback, or describes the death of the worker. `worker_id` is None if all workers
    failed before the task could run.
    """

    task_id: int
    error: str
    worker_id: int | None


@dataclass(frozen=True, slots=True)
class TaskTimeout:
    """A task exceeded its limit of `timeout` seconds and was ended; this is its final answer."""

    task_id: int
    timeout: float
    worker_id: int


@dataclass(frozen=True, slots=True)
class TaskRetried:
    """A worker died during a task; the task is retried. `attempt`: number of failed attempts."""

    task_id: int
    attempt: int
    error: str
    worker_id: int


@dataclass(frozen=True, slots=True)
class SetupFailed:
    """The setup of a worker failed permanently; the worker gets no tasks."""

    gpu_id: int
    error: str
    worker_id: int


@dataclass(frozen=True, slots=True)
class CleanupFailed:
    """The cleanup of a worker failed, after all tasks of the worker were answered."""

    gpu_id: int
    error: str
    worker_id: int


@dataclass(frozen=True, slots=True)
class WorkerDied:
    """The process of a worker ended too early: it crashed, or the parent killed it.

    Attributes
    ----------
    worker_id
        Number of the worker.
    exit
        Exit code of the process, or the name of the signal that killed it; None if unknown.
    task_id
        The task that the worker was running, or None if it was idle.
    how
        Text: how the process ended, and the worker's last error.
    """

    worker_id: int
    exit: int | str | None
    task_id: int | None
    how: str


@dataclass(frozen=True, slots=True)
class Answers:
    """Results of one or more successful tasks of a worker; replaces one `TaskSuccess` per task."""

    task_ids: range | list[int]
    data: list[object]
    worker_id: int


Answer = Answers | TaskSuccess | TaskError | TaskTimeout

Event = Answer | WorkerReady | TaskStarted | TaskRetried | SetupFailed | CleanupFailed | WorkerDied


def in_order(events: Iterable[Event]) -> Iterator[Event]:
    """Yield one answer per task, in ascending order of task ids.

    Each `Answers` event is split into `TaskSuccess` events. Events that are not answers are yielded
    immediately.
    """
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

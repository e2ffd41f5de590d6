"""The events of a dispatcher's run as plain data, and the sorting of its answers. No I/O."""

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
    """The result of a task: its final answer."""

    task_id: int
    data: object
    worker_id: int


@dataclass(frozen=True, slots=True)
class TaskError:
    """The error of a task: its final answer. It is a traceback or the death of its worker.

    `worker_id` is None if all workers had failed before the task could run.
    """

    task_id: int
    error: str
    worker_id: int | None


@dataclass(frozen=True, slots=True)
class TaskTimeout:
    """A task exceeded `timeout` seconds and was ended: its final answer."""

    task_id: int
    timeout: float
    worker_id: int


@dataclass(frozen=True, slots=True)
class TaskRetried:
    """A worker died during a task. The task is retried; `attempt` is the attempts so far."""

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
    """The cleanup of a worker failed. All its tasks were answered before."""

    gpu_id: int
    error: str
    worker_id: int


@dataclass(frozen=True, slots=True)
class WorkerDied:
    """The process of a worker died before the end of its work.

    Attributes
    ----------
    worker_id
        Number of the worker.
    exit
        Exit code of the process, or the name of the signal that killed it; None if unknown.
    task_id
        The task that the worker was running, or None if it was idle.
    how
        Description of the end, with the worker's last error.
    """

    worker_id: int
    exit: int | str | None
    task_id: int | None
    how: str


@dataclass(frozen=True, slots=True)
class Answers:
    """Results of several tasks of one worker: replaces one `TaskSuccess` per task."""

    task_ids: range | list[int]
    data: list[object]
    worker_id: int


Answer = Answers | TaskSuccess | TaskError | TaskTimeout

Event = Answer | WorkerReady | TaskStarted | TaskRetried | SetupFailed | CleanupFailed | WorkerDied


def in_order(events: Iterable[Event]) -> Iterator[Event]:
    """Yield the answers sorted by task number, and all other events without delay."""
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

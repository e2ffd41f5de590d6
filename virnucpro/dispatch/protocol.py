"""Events of a dispatcher's run as plain data, their order, and their counts by worker."""

from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, field
from typing import Any, ClassVar, Generic, Literal

from virnucpro.dispatch.worker import Result, Task


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
    seconds: float = field(default=0.0, kw_only=True)
    status: ClassVar[Literal["success"]] = "success"
    error: ClassVar[str] = ""


@dataclass(frozen=True, slots=True)
class TaskError:
    """A task failed; this is its final answer.

    `error` is a traceback, or describes the death of the worker. `worker_id` is None if all workers
    failed before the task could run. `status`, `seconds`: as for `Outcome`.
    """

    task_id: int
    error: str
    worker_id: int | None
    status: Literal["error", "died"] = field(default="error", kw_only=True)
    seconds: float = field(default=0.0, kw_only=True)
    data: ClassVar[None] = None


@dataclass(frozen=True, slots=True)
class TaskTimeout:
    """A task exceeded its limit of `timeout` seconds and was ended; this is its final answer."""

    task_id: int
    timeout: float
    worker_id: int
    seconds: float = field(default=0.0, kw_only=True)
    status: ClassVar[Literal["timeout"]] = "timeout"
    data: ClassVar[None] = None

    @property
    def error(self) -> str:
        """The timeout as a sentence."""
        return f"the task exceeded its limit of {self.timeout:g} s."


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
class Outcome(Generic[Task, Result]):
    """The final answer to one task, a success or a failure, as a value; see `Dispatcher.imap`.

    Attributes
    ----------
    task
        The task, as the iterable yielded it.
    number
        Number of the task, from 0.
    status
        ``success``; ``error``: `process` raised an error, or the task or its result could not be
        pickled; ``timeout``: the time limit was exceeded; ``died``: no attempt was finished because
        workers died, all workers failed, or the run was stopped.
    value
        The result; None after a failure.
    error
        Traceback or reason of the failure; empty after a success.
    worker
        Number of the last worker; None if none ran the task.
    seconds
        Duration of the last attempt in seconds; 0 if no attempt began.
    """

    task: Task
    number: int
    status: Literal["success", "error", "timeout", "died"]
    value: Result | None
    error: str
    worker: int | None
    seconds: float

    @property
    def ok(self) -> bool:
        """Whether the task succeeded."""
        return self.status == "success"


Answer = TaskSuccess | TaskError | TaskTimeout

Event = Answer | WorkerReady | TaskStarted | TaskRetried | SetupFailed | CleanupFailed | WorkerDied


def in_order(events: Iterable[Event]) -> Iterator[Event]:
    """Yield the events, and answers in ascending order of task ids.

    Events that are not answers are yielded immediately.
    """
    held: dict[int, Event] = {}
    turn = 0
    for event in events:
        if isinstance(event, Answer):
            held[event.task_id] = event
        else:
            yield event
        while turn in held:
            yield held.pop(turn)
            turn += 1


RECENT = 8
"""Maximum number of recent errors that the statistics contain, one line each."""


@dataclass(slots=True)
class WorkerStats:
    """Task counts and status of one worker.

    Attributes
    ----------
    status
        ``initializing``, ``idle`` (setup finished, with or without a task), ``restarting``,
        ``error`` (the setup failed permanently) or ``finished``.
    completed, failed, timeouts
        Numbers of answers: results, errors, exceeded time limits.
    retries, deaths
        Numbers of retried tasks, and of deaths of the worker's process.
    last_duration
        Seconds of the worker's last task, or None.
    """

    status: str = "initializing"
    completed: int = 0
    failed: int = 0
    timeouts: int = 0
    retries: int = 0
    deaths: int = 0
    last_duration: float | None = None


class DispatchStats:
    """Task counts and statuses of all workers of a run.

    Parameters
    ----------
    worker_ids
        Ids of the workers.
    """

    def __init__(self, worker_ids: Iterable[int] = ()) -> None:
        # The key None is for tasks that no worker could run.
        self._by_worker: dict[int | None, WorkerStats] = {key: WorkerStats() for key in worker_ids}
        self._setup_failures = 0
        self._cleanup_failures = 0
        self._recent: deque[str] = deque(maxlen=RECENT)

    def note(self, event: Event) -> None:
        """Add an event to the counts of its worker, and update the status of this worker."""
        counts = self._by_worker.setdefault(event.worker_id, WorkerStats())
        if isinstance(event, Answer):
            counts.last_duration = event.seconds
        match event:
            case TaskSuccess():
                counts.completed += 1
            case TaskError(task_id, error):
                counts.failed += 1
                self._recent.append(f"task {task_id}: {_last_line(error)}")
            case TaskTimeout(task_id, timeout):
                counts.timeouts += 1
                self._recent.append(f"task {task_id}: exceeded its limit of {timeout:g} s")
            case TaskRetried(task_id, _, error):
                counts.retries += 1
                self._recent.append(f"task {task_id}, retried: {_last_line(error)}")
            case WorkerReady():
                counts.status = "idle"
            case WorkerDied():
                counts.deaths += 1
                counts.status = "restarting"
            case SetupFailed(_, error, worker_id):
                self._setup_failures += 1
                counts.status = "error"
                self._recent.append(f"worker {worker_id}, setup: {_last_line(error)}")
            case CleanupFailed(_, error, worker_id):
                self._cleanup_failures += 1
                self._recent.append(f"worker {worker_id}, cleanup: {_last_line(error)}")

    def finish(self) -> None:
        """Set the status of each worker to ``finished`` at the end of the run; keep ``error``."""
        for counts in self._by_worker.values():
            if counts.status != "error":
                counts.status = "finished"

    def as_dict(self) -> dict[str, Any]:
        """Return a dict of totals, recent errors, and the counts and status of each worker."""
        by_worker = self._by_worker.copy()
        names = ("completed", "failed", "timeouts", "retries", "deaths")
        return {
            **{name: sum(getattr(stats, name) for stats in by_worker.values()) for name in names},
            "setup_failures": self._setup_failures,
            "cleanup_failures": self._cleanup_failures,
            "recent": list(self._recent),
            "workers": {
                worker_id: asdict(stats)
                for worker_id, stats in by_worker.items()
                if worker_id is not None
            },
        }


def _last_line(text: str) -> str:
    return (text.strip().splitlines() or [""])[-1]

"""One worker as the parent process sees it: its process, its tasks and its answers."""

import math
import os
import time
import traceback
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from numbers import Real
from typing import NamedTuple

from virnucpro.dispatch.codec import (
    Body,
    Failed,
    as_body,
    from_body,
    pack_bodies,
    pack_plain,
    unpack,
)
from virnucpro.dispatch.protocol import Answer, Answers, TaskError, TaskStarted, TaskTimeout
from virnucpro.dispatch.stream import Tasks
from virnucpro.dispatch.worker_main import PROGRESSED, RUNNING, STARTED, Assignment, serve
from virnucpro.runtime.child import Setup
from virnucpro.runtime.shared import Region, SharedMemory
from virnucpro.runtime.status import GUARD_ADVICE, Death, exit_text
from virnucpro.runtime.supervisor import Supervisor
from virnucpro.runtime.watchdog import Watched

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
        Whether a task is kept for each worker that is still in its first setup.
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
            if seconds is None:
                continue
            # A comparison with NaN is never true.
            if not (isinstance(seconds, Real) and 0 < float(seconds) < math.inf):
                raise ValueError(
                    f"{name} must be a number of seconds above 0 or None for no limit, "
                    f"not {seconds!r}."
                )

    @property
    def task_limit(self) -> float | None:
        """Seconds from the start of a task until the parent kills the worker; None for no limit."""
        return None if self.task_timeout is None else self.task_timeout + HARD_GRACE_S


BATCH_S = 0.01
"""Target duration of a batch in seconds."""

MOST = 512
"""Maximum number of tasks in a batch."""

SLOW_S = 0.05
"""Tasks longer than this (seconds) are sent one by one, each after the previous answer."""

_MEMORY = 0.7

LATE_TASK = "it did not finish its task"
"""Error text for a worker that exceeds the time limit of its task."""


class Ending(NamedTuple):
    """Reason for which the parent kills a worker.

    Attributes
    ----------
    serial
        Number of the task that is the cause, counted from 1 in the order in which this worker got
        tasks; 0 if no task is the cause.
    why
        The reason as text.
    timed_out
        Whether the task exceeded its time limit; the answer to the task is then a timeout.
    """

    serial: int
    why: str
    timed_out: bool


class State(Enum):
    """State of a worker: in its setup, ready for tasks, failed in its setup, or ending."""

    STARTING = auto()
    READY = auto()
    FAILED = auto()
    """The setup failed; the process ends without a signal."""
    ENDING = auto()
    """The parent has sent the end of the task stream."""


@dataclass(slots=True)
class _Batch:
    ids: range | list[int]
    data: list[object]
    done: int = 0


class BatchSizer:
    """Chooses the batch size of one worker from its throughput.

    Parameters
    ----------
    most
        Maximum number of tasks in a batch; 0: send single tasks, each after the previous answer.
    """

    def __init__(self, most: int) -> None:
        self._alone = most == 0
        self._most = max(1, min(most, MOST))
        self._seconds: float | None = None

    def note(self, count: int, seconds: float) -> None:
        """Update the worker's throughput: `count` tasks took `seconds` in total."""
        each = seconds / count
        if self._seconds is None or each > 10 * self._seconds:
            self._seconds = each
        else:
            self._seconds = _MEMORY * self._seconds + (1 - _MEMORY) * each

    def wanted(self, outstanding: int) -> int:
        """Return the number of tasks to send to a worker that has `outstanding` tasks.

        A worker gets a second batch while it runs the first. Slow tasks are sent one by one.
        """
        if self._alone or self._seconds is None or self._seconds > SLOW_S:
            return 0 if outstanding else 1
        batch = max(1, min(self._most, int(BATCH_S / max(self._seconds, 1e-9))))
        return batch if outstanding <= batch else 0


class WorkerHandle:
    """One worker process as the parent sees it, from the start of the process to its end.

    Parameters
    ----------
    setup, assignment
        The parameters of the process and of the worker, the same when the process is replaced.
    most
        Maximum number of tasks in a batch; 0: send single tasks, each after the previous answer.
    new
        Whether no process with these parameters has got a task.

    Attributes
    ----------
    new
        Whether neither this process nor an earlier one has got a task.
    answered, outstanding
        Number of tasks that the worker has answered, and number of sent tasks without an answer.
    """

    def __init__(self, setup: Setup, assignment: Assignment, most: int, *, new: bool) -> None:
        self.setup = setup
        self.assignment = assignment
        self.new = new
        self.worker_id = setup.rank
        self.gpu_id = assignment.gpu_id
        self.state = State.STARTING
        self.since = time.monotonic()
        self.answered = 0
        self._reported = 0
        self.ending: Ending | None = None
        self.last_error = ""
        self.finished = False
        self.alone = False
        self._batch_sizer = BatchSizer(most)
        self._batches: deque[_Batch] = deque()
        self.outstanding = 0
        self._memory = SharedMemory()

    def start(self, children: Supervisor) -> None:
        """Start the worker's process; raises the errors of `Supervisor.start`."""
        arguments = self.assignment, self._memory.childs_end
        name = f"virnucpro-worker-{self.worker_id}"
        self._children = children
        self._child = children.start(name, self.setup, serve, arguments)
        self._memory.close_descriptor()

    def finish(self) -> None:
        """Tell the worker that no more tasks follow, with an empty message."""
        self._children.send(self.worker_id, b"")

    def enter(self, state: State) -> None:
        """Change the state of the worker and record the time of the change."""
        self.state, self.since = state, time.monotonic()

    @property
    def running(self) -> int | None:
        """Serial number (from 1) of the worker's running task; None if no task is running."""
        serial: int = self._memory.words[RUNNING]
        return serial if serial > self.answered else None

    @property
    def begun(self) -> int | None:
        """Serial number (from 1) of the last started task; None if its answer has arrived.

        The task may be finished, but its result not sent. The result is lost if the worker dies.
        """
        serial: int = abs(self._memory.words[RUNNING])
        return serial if self.answered < serial <= self.answered + self.outstanding else None

    @property
    def seconds_in_task(self) -> float:
        """Seconds since the start of the last started task."""
        return time.monotonic() - self._memory.times[STARTED]

    def deadlines(self, rules: Rules, *, all_answered: bool) -> Iterator[Watched]:
        """Yield the worker's current time limits: for setup, progress, task or cleanup."""
        limits: list[tuple[str, float | None, object]] = []
        if self.state is State.STARTING:
            limits = [("it did not finish its setup", rules.setup_timeout, None)]
            if all_answered:
                fault = "after the last task was done, it did not finish its setup"
                limits.append((fault, rules.cleanup_timeout, None))
        elif self.state is not State.READY:
            limits = [("its process did not exit", rules.cleanup_timeout, self.state)]
        elif self.outstanding:
            memory, serial = self._memory, self.running
            progress = memory.words[RUNNING], memory.times[PROGRESSED]
            # Bytes in either pipe: the worker makes progress, or waits for the parent.
            transfer = self._child.reads, self._child.writes
            limits = [("it made no progress", rules.progress_timeout, (progress, transfer))]
            if serial is not None:
                limits.append((LATE_TASK, rules.task_limit, serial))
        for fault, limit, sign in limits:
            if limit is not None:
                yield Watched(self.worker_id, fault, limit, sign)

    def lacks_main_guard(self, death: Death) -> bool:
        """Return whether the worker ended because the main script lacks the main guard."""
        return death.lacks_main_guard(starting=self.state is State.STARTING)

    def how_it_ended(self, death: Death) -> str:
        """Return an error text: how the worker ended, its log file (if any), and its last error."""
        how = exit_text(death.code)
        if self.lacks_main_guard(death):
            how = f"did not start: {GUARD_ADVICE}"
        elif self.ending is not None:
            how = f"was stopped because {self.ending.why}"
        elif how.startswith("killed"):
            how = f"was {how}"
        log = self.setup.log
        where = "" if log is None or str(log) == os.devnull else f" (its output: {log})"
        return f"worker {self.worker_id} {how}{where}.\n{self.last_error}".rstrip()

    @property
    def wanted(self) -> int:
        """Number of tasks to send to the worker now; 0 if it is not ready or has enough tasks."""
        if self.state is not State.READY or self.alone:
            return 0
        return self._batch_sizer.wanted(self.outstanding)

    @property
    def idle(self) -> bool:
        """Whether the worker is ready and has no task."""
        return self.state is State.READY and not self.outstanding

    def give(self, tasks: Tasks) -> list[TaskError]:
        """Send tasks to the worker; return a `TaskError` for each task that cannot be pickled."""
        ids, data = tasks
        plain = pack_plain(data)
        refused: list[TaskError] = []
        if plain is not None:
            frame: list[bytes | memoryview] = [plain]
        else:
            bodies = [as_body(item, self._place) for item in data]
            refused = [
                TaskError(task_id, body.traceback or "", self.worker_id)
                for task_id, body in zip(ids, bodies, strict=True)
                if isinstance(body, Failed)
            ]
            kept = [n for n, body in enumerate(bodies) if not isinstance(body, Failed)]
            ids, data = [ids[n] for n in kept], [data[n] for n in kept]
            frame = pack_bodies([bodies[n] for n in kept])
        if data:
            self.new = False
            self._batches.append(_Batch(ids, data))
            self.outstanding += len(data)
            self._children.send(self.worker_id, *frame)
        return refused

    def take(
        self, frame: memoryview, count: int, seconds: float, timeout: float | None
    ) -> Iterator[Answer]:
        """Decode a message with `count` results and yield the answers.

        The tasks took `seconds` in total; `timeout` is the time limit for a `TaskTimeout`.
        """
        self._batch_sizer.note(count, seconds)
        self.alone = False
        each = seconds / count
        plain, values = unpack(frame)
        while values:
            batch = self._batches[0]
            fresh = batch.ids[batch.done : batch.done + len(values)]
            some, values = values[: len(fresh)], values[len(fresh) :]
            batch.done += len(some)
            if batch.done == len(batch.ids):
                self._batches.popleft()
            self.outstanding -= len(some)
            self.answered += len(some)
            if plain:
                yield Answers(fresh, some, self.worker_id, seconds=each)
            else:
                for task_id, body in zip(fresh, some, strict=True):
                    yield self._answer(task_id, body, timeout, each)  # type: ignore[arg-type]

    def ids_between(self, first: int, stop: int) -> list[int]:
        """Return the ids of unanswered tasks with serial numbers ``first + 1`` to `stop`."""
        ids = [task_id for batch in self._batches for task_id in batch.ids[batch.done :]]
        return ids[first - self.answered : stop - self.answered]

    def start_events(self, until: int | None) -> Iterator[TaskStarted]:
        """Yield a `TaskStarted` event for each unreported task, up to serial number `until`."""
        if until is not None and until > self._reported:
            ids = self.ids_between(self._reported, until)
            self._reported = until
            for task_id in ids:
                yield TaskStarted(task_id, self.worker_id)

    def current_task(self) -> tuple[int | None, float | None]:
        """Return id and start of the running task (monotonic seconds). Any thread may call this.

        Both are None if no task is running.
        """
        try:
            serial, since = self.running, self._memory.times[STARTED]
            ids = [] if serial is None else self.ids_between(serial - 1, serial)
        # Race: the memory was closed, or tasks were added, while this thread read them.
        except (ValueError, RuntimeError):
            return None, None
        return (ids[0], since) if ids else (None, None)

    def unanswered(self) -> list[tuple[int, object]]:
        """Return id and data of each task without an answer, in the order of sending."""
        return [
            pair
            for batch in self._batches
            for pair in zip(batch.ids[batch.done :], batch.data[batch.done :], strict=True)
        ]

    def close(self) -> None:
        """Free the shared memory of this worker."""
        self._memory.close()

    def _place(self, pieces: Sequence[memoryview]) -> Region | None:
        ring = self._memory.downwards
        return ring.put(pieces) if ring.fits(pieces) else None

    def _answer(self, task_id: int, body: Body, timeout: float | None, seconds: float) -> Answer:
        if not isinstance(body, Failed):
            try:
                data = [from_body(body, self._memory.upwards)]
                return Answers([task_id], data, self.worker_id, seconds=seconds)
            except Exception:  # noqa: BLE001 - runs the user's code, which may raise anything
                body = Failed(
                    f"{traceback.format_exc()}The result cannot be unpickled in the parent: return "
                    "plain data, or objects of classes that the parent can import."
                )
        if body.traceback is None:
            limit = timeout or 0.0  # the mean of tasks that were answered together may be less
            return TaskTimeout(task_id, limit, self.worker_id, seconds=max(seconds, limit))
        return TaskError(task_id, body.traceback, self.worker_id, seconds=seconds)

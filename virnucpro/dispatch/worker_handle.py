"""One worker as the parent process sees it: its process, its task and its answers."""

import math
import os
import pickle
import time
import traceback
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum, auto
from numbers import Real

from virnucpro.dispatch.protocol import Answer, TaskError, TaskStarted, TaskSuccess, TaskTimeout
from virnucpro.dispatch.stream import NumberedTask
from virnucpro.dispatch.worker_main import (
    ANSWER_HEAD,
    PROGRESSED,
    RUNNING,
    Assignment,
    Tag,
    serve,
)
from virnucpro.errors import WorkerError
from virnucpro.runtime.child import Setup
from virnucpro.runtime.shared import SharedNumbers
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

    Raises
    ------
    ValueError
        If `max_attempts` is below 1, or a time limit is not a number above 0.
    """

    max_attempts: int
    setup_timeout: float | None
    cleanup_timeout: float | None
    progress_timeout: float | None
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


LATE_TASK = "it did not finish its task"
"""Error text for a worker that exceeds the time limit of its task."""


class State(Enum):
    """State of a worker: in its setup, ready for tasks, failed in its setup, or ending."""

    STARTING = auto()
    READY = auto()
    FAILED = auto()
    """The setup failed; the process ends without a signal."""
    ENDING = auto()
    """The parent has sent the end of the task stream."""


class WorkerHandle:
    """One worker process as the parent sees it, from the start of the process to its end.

    Parameters
    ----------
    setup, assignment
        The parameters of the process and of the worker, the same when the process is replaced.

    Attributes
    ----------
    task, sent_at
        The task without an answer (None: no task), and the time at which it was sent, in seconds of
        `time.monotonic`.
    answered
        Number of tasks that the worker has answered.
    ending
        The exceeded deadline for which the parent kills the worker, or None.
    """

    def __init__(self, setup: Setup, assignment: Assignment) -> None:
        self.setup = setup
        self.assignment = assignment
        self.worker_id = setup.rank
        self.gpu_id = assignment.gpu_id
        self.state = State.STARTING
        self.task: NumberedTask | None = None
        self.sent_at = 0.0
        self.answered = 0
        self.ending: Watched | None = None
        self.last_error = ""
        self.finished = False
        self._shared = SharedNumbers()

    def start(self, children: Supervisor) -> None:
        """Start the worker's process; raises the errors of `Supervisor.start`."""
        arguments = self.assignment, self._shared.childs_end
        name = f"virnucpro-worker-{self.worker_id}"
        self._children = children
        self._child = children.start(name, self.setup, serve, arguments)
        self._shared.close_descriptor()

    def finish(self) -> None:
        """Tell the worker that no more tasks follow, with an empty message."""
        self._children.send(self.worker_id, b"")

    @property
    def idle(self) -> bool:
        """Whether the worker is ready and has no task."""
        return self.state is State.READY and self.task is None and self.ending is None

    @property
    def has_begun(self) -> bool:
        """Whether the worker has started its task, or finished it without sending the answer."""
        return self.task is not None and abs(self._shared.values[RUNNING]) == self.answered + 1

    @property
    def seconds_in_task(self) -> float:
        """Seconds since the last task was sent."""
        return time.monotonic() - self.sent_at

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
        elif self.task is not None:
            running, progressed = self._shared.values[RUNNING], self._shared.values[PROGRESSED]
            # Bytes in either pipe: the worker makes progress, or waits for the parent.
            progress = running, progressed, self._child.reads, self._child.writes
            limits = [("it made no progress", rules.progress_timeout, progress)]
            if running > self.answered:
                limits.append((LATE_TASK, rules.task_limit, running))
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

    def give(self, task: NumberedTask) -> TaskStarted | TaskError:
        """Send a task to the worker; return a `TaskError` if the task cannot be pickled."""
        task_id, data = task
        try:
            message = pickle.dumps(data, protocol=5)
        except Exception:  # noqa: BLE001 - pickling runs the user's code, which may raise anything
            return TaskError(task_id, traceback.format_exc(), self.worker_id)
        self.task, self.sent_at = task, time.monotonic()
        self._children.send(self.worker_id, message)
        return TaskStarted(task_id, self.worker_id)

    def take(self, tag: bytes, payload: memoryview, timeout: float | None) -> Answer:
        """Return the answer to the worker's task; `timeout` is the time limit of tasks.

        Raises
        ------
        WorkerError
            If this is not the answer to the task. A forked copy of the worker may have sent it.
        """
        serial, seconds = ANSWER_HEAD.unpack_from(payload)
        if self.task is None or serial != self.answered + 1:
            raise WorkerError("the worker, or a forked copy of it, answered a task that it had not")
        (task_id, _), self.task = self.task, None
        self.answered += 1
        content = payload[ANSWER_HEAD.size :]
        if tag == Tag.TIMED_OUT:
            return TaskTimeout(task_id, timeout or 0.0, self.worker_id, seconds=seconds)
        if tag == Tag.ERROR:
            return TaskError(task_id, str(content, "utf-8"), self.worker_id, seconds=seconds)
        try:
            result = pickle.loads(content)  # noqa: S301 - written by this very program
        except Exception:  # noqa: BLE001 - runs the user's code, which may raise anything
            text = (
                f"{traceback.format_exc()}The result cannot be unpickled in the parent: return "
                "plain data, or objects of classes that the parent can import."
            )
            return TaskError(task_id, text, self.worker_id, seconds=seconds)
        return TaskSuccess(task_id, result, self.worker_id, seconds=seconds)

    def close(self) -> None:
        """Free the shared memory of this worker."""
        self._shared.close()

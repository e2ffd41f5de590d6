"""Main function of a worker process: setup, all tasks from the parent, their results, cleanup."""

import os
import pickle
import struct
import time
import traceback
from collections.abc import Callable, Mapping
from functools import partial
from operator import attrgetter
from pathlib import Path
from typing import Any, NamedTuple

from virnucpro.dispatch.worker import BaseWorker, WorkerUnusable, file_of, import_file
from virnucpro.runtime.messages import Report, WorkerChannel
from virnucpro.runtime.shared import SharedNumbers
from virnucpro.runtime.signals import call_on_alarm, call_on_stop, ignore_stops, set_alarm


class Tag:
    """First byte of a message from a worker, which defines the type of the message."""

    READY = b"R"
    SETUP_FAILED = b"S"
    RESULT = b"A"
    ERROR = b"E"
    TIMED_OUT = b"T"
    CLEANUP_FAILED = b"C"


ANSWER_HEAD = struct.Struct("=qd")
"""Start of an answer, after its tag: the number of the worker's task, from 1, and its seconds.

The pickled result or the traceback follows.
"""

Answer = tuple[bytes, bytes]
"""Tag and content of the answer to a task."""

TIMED_OUT = object()
"""Returned in place of the result of a task that exceeded its time limit."""


class TaskInterrupted(BaseException):
    """Error that ends a running task; ``except Exception`` in the task does not catch it."""


class Interrupter:
    """Handles the alarm (time limit of a task) and SIGTERM (the run stops).

    Parameters
    ----------
    limit
        Time limit of a task in seconds; None for no limit.

    Attributes
    ----------
    stopping
        Whether the parent has requested a stop.
    interruptible
        Whether a stop request may interrupt now; False while a message is sent.
    """

    def __init__(self, limit: float | None) -> None:
        self._limit = limit
        self._inside = False
        self._timed_out = False
        self.stopping = False
        self.interruptible = False
        call_on_alarm(self._on_alarm)
        call_on_stop(self._on_stop)

    def limited(self, process: Callable[[Any], Any]) -> Callable[[Any], Any]:
        """Return a function that calls `process` with the time limit of a task.

        The function returns the result of `process`, or `TIMED_OUT` if the limit is exceeded. It
        returns `TIMED_OUT` even if the task catches `TaskInterrupted` and continues.
        """
        limit = self._limit
        if limit is None:
            return process

        def call(data: object) -> object:
            self._timed_out, self._inside = False, True
            try:
                try:
                    set_alarm(limit)
                    result = process(data)
                finally:
                    # Race: the alarm may come before the next line; the outer block handles it.
                    self._inside = False
                    set_alarm(0)
            except BaseException:
                if not self._timed_out:
                    raise
                return TIMED_OUT
            return TIMED_OUT if self._timed_out else result

        return call

    def run_interruptible(self, function: Callable[[], Answer]) -> Answer | None:
        """Call a function that SIGTERM interrupts; return None if the parent requested a stop."""
        self.interruptible = True
        try:
            return None if self.stopping else function()
        except TaskInterrupted:
            if not self.stopping:
                raise
            return None
        finally:
            self.interruptible = False

    def _on_alarm(self) -> None:
        if self._inside:
            self._inside = False
            self._timed_out = True
            raise TaskInterrupted("the task exceeded its time limit")

    def _on_stop(self) -> None:
        first, self.stopping = not self.stopping, True
        if first and self.interruptible:
            raise TaskInterrupted("the run is being stopped")


RUNNING = 0
"""Index of the shared number of the last started task, from 1; negative once it has its answer."""

PROGRESSED = 1
"""Index of the shared time of the last reported progress (seconds); 0 before any progress."""


class Assignment(NamedTuple):
    """Class, device number, seed, task limit in seconds, and keyword arguments of one worker."""

    worker_cls: type[BaseWorker]
    gpu_id: int
    seed: int
    task_timeout: float | None
    keywords: Mapping[str, Any]

    def __reduce__(self) -> tuple[Callable[..., "Assignment"], tuple[object, ...]]:
        rest = self.gpu_id, self.seed, self.task_timeout, self.keywords
        file = file_of(self.worker_cls)
        if file is None:
            return Assignment, (self.worker_cls, *rest)
        return _assignment_from_file, (file, self.worker_cls.__qualname__, *rest)


def _assignment_from_file(file: Path, name: str, *rest: Any) -> Assignment:  # noqa: ANN401 - Assignment's own
    return Assignment(attrgetter(name)(import_file(file)), *rest)


def serve(
    _rank: int,
    _world_size: int,
    channel: WorkerChannel,
    assignment: Assignment,
    shared: int,
) -> None:
    """Run setup, tasks and cleanup of one worker; called by `virnucpro.runtime.child.run_child`.

    `shared` is a descriptor of the shared memory.
    """
    numbers = SharedNumbers(shared).values
    beat = partial(_beat, numbers)
    try:
        worker = assignment.worker_cls()
        worker._beat = beat  # noqa: SLF001 - the dispatcher's part of it
        worker.setup(assignment.gpu_id, assignment.seed, **assignment.keywords)
    except BaseException:  # noqa: BLE001 - SystemExit is a failed setup, too
        _send(channel, Tag.SETUP_FAILED, _traceback())
        return
    tasks = _TaskLoop(worker, numbers, channel, Interrupter(assignment.task_timeout))
    os.register_at_fork(after_in_child=tasks.disown)
    _send(channel, Tag.READY)
    tasks.run()
    ignore_stops()
    try:
        worker.cleanup()
    except BaseException:  # noqa: BLE001 - SystemExit, too
        _send(channel, Tag.CLEANUP_FAILED, _traceback())


def _beat(numbers: "memoryview[float]") -> None:
    # A single assignment: two threads can call this at the same time.
    numbers[PROGRESSED] = time.monotonic()


def _send(channel: WorkerChannel, *parts: bytes) -> None:
    channel.send(Report(b"".join(parts)))


def _traceback() -> bytes:
    return traceback.format_exc().encode("utf-8", "backslashreplace")


class _TaskLoop:
    """Runs the tasks of a worker one by one."""

    def __init__(
        self,
        worker: BaseWorker,
        numbers: "memoryview[float]",
        channel: WorkerChannel,
        interrupter: Interrupter,
    ) -> None:
        self._numbers = numbers
        self._channel = channel
        self._interrupter = interrupter
        self._disowned = False
        self._process = interrupter.limited(
            lambda message: worker.process(pickle.loads(message))  # noqa: S301 - written by this worker's own parent
        )

    def disown(self) -> None:
        """Mark this process as a fork of the worker, which must not send answers."""
        self._disowned = True

    def run(self) -> None:
        """Run the parent's tasks until it sends an empty message or ends, or the run stops."""
        numbers, serial = self._numbers, 0
        while message := self._channel.receive():
            serial += 1
            numbers[RUNNING], started = serial, time.monotonic()
            answer = self._interrupter.run_interruptible(partial(self._answer, message))
            if answer is None:
                return
            seconds = time.monotonic() - started
            numbers[RUNNING] = -serial
            _beat(numbers)  # a large result is copied before its first byte is sent
            _send(self._channel, answer[0], ANSWER_HEAD.pack(serial, seconds), answer[1])

    def _answer(self, message: bytes) -> Answer:
        try:
            result = self._process(message)
            self._leave_if_disowned()
            _beat(self._numbers)  # pickling has a deadline of its own
            return (
                (Tag.TIMED_OUT, b"")
                if result is TIMED_OUT
                else (Tag.RESULT, pickle.dumps(result, protocol=5))
            )
        except (TaskInterrupted, WorkerUnusable):
            raise
        except BaseException:  # noqa: BLE001 - the answer to this task; SystemExit, too
            self._leave_if_disowned()
            return Tag.ERROR, _traceback()

    def _leave_if_disowned(self) -> None:
        if self._disowned:
            os._exit(0)

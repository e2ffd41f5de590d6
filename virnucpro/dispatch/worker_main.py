"""Main function of a worker process: setup, all tasks from the parent, cleanup."""

import os
import time
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from operator import attrgetter
from pathlib import Path
from typing import Any

from virnucpro.dispatch.codec import NUMBERS, Failed, from_body, unpack
from virnucpro.dispatch.interrupter import Interrupter, TaskInterrupted
from virnucpro.dispatch.result_sender import FLUSH_S, ResultSender, Tag
from virnucpro.dispatch.worker import BaseWorker, WorkerUnusable, file_of, import_file
from virnucpro.runtime.feed import read_messages
from virnucpro.runtime.shared import SharedMemory
from virnucpro.runtime.signals import ignore_stops
from virnucpro.runtime.worker_channel import WorkerChannel

__all__ = ["PROGRESSED", "RUNNING", "STARTED", "Assignment", "serve"]

RUNNING = 0
"""Index of the shared number of the running task, from 1; negative between tasks."""

STARTED = 0
"""Index of the shared time at which the running task started (seconds, monotonic clock)."""

PROGRESSED = 1
"""Index of the shared time of the last reported progress (seconds); 0 before any progress."""


@dataclass(frozen=True, slots=True)
class Assignment:
    """Class, device number, seed, task limit in seconds, and keyword arguments of one worker."""

    worker_cls: type[BaseWorker]
    gpu_id: int
    seed: int
    task_timeout: float | None
    keywords: Mapping[str, Any] = field(default_factory=dict)

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
    feed: int,
    shared: int,
    space: int,
) -> None:
    """Run setup, tasks and cleanup of one worker; called by `virnucpro.runtime.child.run_child`.

    `feed`, `shared` and `space` are descriptors: of the pipe with tasks, of the shared memory, and
    of the signal of the parent that the ring buffer has free space.
    """
    memory = SharedMemory(shared)
    beat = partial(_beat, memory.times)
    sender = ResultSender(channel, memory.upwards, memory.words, space, beat)
    try:
        worker = assignment.worker_cls()
        worker._beat = beat  # noqa: SLF001 - the dispatcher's part of it
        worker.setup(assignment.gpu_id, assignment.seed, **assignment.keywords)
    except BaseException:  # noqa: BLE001 - SystemExit is a failed setup, too
        sender.report(Tag.SETUP_FAILED, traceback.format_exc())
        return
    os.register_at_fork(after_in_child=sender.disown)
    interrupter = Interrupter(assignment.task_timeout)
    sender.stopping = lambda: interrupter.stopping
    sender.report(Tag.READY)
    _TaskLoop(worker, memory, sender, interrupter).run(feed)
    ignore_stops()
    try:
        worker.cleanup()
    except BaseException:  # noqa: BLE001 - SystemExit, too
        sender.report(Tag.CLEANUP_FAILED, traceback.format_exc())


def _beat(times: "memoryview[float]") -> None:
    # A single assignment: two threads can call this at the same time.
    times[PROGRESSED] = time.monotonic()


class _TaskLoop:
    """Runs the tasks of a worker one by one."""

    def __init__(
        self,
        worker: BaseWorker,
        memory: SharedMemory,
        sender: ResultSender,
        interrupter: Interrupter,
    ) -> None:
        self._memory = memory
        self._sender = sender
        self._interrupter = interrupter
        self._serial = 0
        self._plain = interrupter.limited(worker.process)
        ring = memory.downwards
        self._sealed = interrupter.limited(lambda body: worker.process(from_body(body, ring)))

    def run(self, feed: int) -> None:
        """Run the tasks from the pipe `feed`, until the pipe ends or the run stops."""
        for message in read_messages(feed):
            plain, values = unpack(message)
            process = self._plain if plain else self._sealed
            self._sender.begin()
            self._interrupter.run_interruptible(lambda: self._batch(process, values))  # noqa: B023 - called at once
            if self._interrupter.stopping:
                return
            self._memory.words[RUNNING] = -self._serial
            self._sender.end()

    def _batch(self, process: Callable[[Any], Any], values: list[object]) -> None:
        words, times, sender = self._memory.words, self._memory.times, self._sender
        interrupter, append, clock = self._interrupter, sender.values.append, time.monotonic
        serial = self._serial
        for value in values:
            # First the time, then the number: a reader of the number gets this task's time.
            times[STARTED] = now = clock()
            serial += 1
            words[RUNNING] = serial
            try:
                result = process(value)
                sender.leave_if_disowned()
                if type(result) in NUMBERS:
                    append(result)
                else:
                    interrupter.interruptible = False
                    append(sender.pack(result))
                    interrupter.interruptible = True
            except TaskInterrupted:
                raise
            except WorkerUnusable:
                interrupter.interruptible = False
                sender.flush()  # the results of earlier tasks
                raise
            except BaseException:  # noqa: BLE001 - the answer to this task; SystemExit, too
                sender.leave_if_disowned()
                append(Failed(traceback.format_exc()))
            if now - sender.flushed_at > FLUSH_S:
                interrupter.interruptible = False
                words[
                    RUNNING
                ] = -serial  # if the worker dies during the sending, this task is not the cause
                sender.flush()
                interrupter.interruptible = True
                if interrupter.stopping:
                    return
        self._serial = serial

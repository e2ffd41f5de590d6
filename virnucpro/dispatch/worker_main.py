"""What runs in a worker's process: set up, do tasks until the feed ends, put away."""

import os
import time
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, cast

from virnucpro.dispatch.codec import NUMBERS, Failed, Stored, from_body, unpack
from virnucpro.dispatch.interrupter import Interrupter, TaskInterrupted
from virnucpro.dispatch.result_sender import FLUSH_S, ResultSender, Tag
from virnucpro.dispatch.worker import BaseWorker, WorkerUnusable
from virnucpro.dispatch.worker_file import class_of_file, file_of
from virnucpro.runtime.feed import frames
from virnucpro.runtime.shared import SharedMemory
from virnucpro.runtime.signals import ignore_stops
from virnucpro.runtime.worker_channel import WorkerChannel

__all__ = ["PROGRESSED", "RUNNING", "STARTED", "Assignment", "serve"]

RUNNING = 0
"""Which shared number counts the task that runs, from 1 on; negative after it, while idle."""

STARTED = 0
"""Which shared time says when it began (monotonic, the same clock for all processes)."""

PROGRESSED = 1
"""Which shared time says when the worker said last that it gets on; 0 where it never did."""


@dataclass(frozen=True, slots=True)
class Assignment:
    """Who the worker is."""

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
    return Assignment(class_of_file(file, name), *rest)


def serve(
    _rank: int,
    _world_size: int,
    outbox: WorkerChannel,
    assignment: Assignment,
    feed: int,
    shared: int,
    space: int,
) -> None:
    """Be one worker of a dispatcher (see `virnucpro.runtime.child.run_child`)."""
    memory = SharedMemory(shared)
    beat = partial(_beat, memory.times)
    post = ResultSender(outbox, memory.upwards, memory.words, space, beat)
    try:
        worker = assignment.worker_cls()
        worker._beat = beat  # noqa: SLF001 - the dispatcher's part of it
        worker.setup(assignment.gpu_id, assignment.seed, **assignment.keywords)
    except BaseException:  # noqa: BLE001 - SystemExit, too, is a set-up that failed
        post.tell(Tag.SETUP_FAILED, traceback.format_exc())
        return
    os.register_at_fork(after_in_child=post.disown)
    interrupter = Interrupter(assignment.task_timeout)
    post.stopping = lambda: interrupter.stopping
    post.tell(Tag.READY)
    _Desk(worker, memory, post, interrupter).work(feed)
    ignore_stops()
    try:
        worker.cleanup()
    except BaseException:  # noqa: BLE001 - SystemExit, too
        post.tell(Tag.CLEANUP_FAILED, traceback.format_exc())


def _beat(times: "memoryview[float]") -> None:
    # One store, of a number that was not there before: two threads cannot undo each other's.
    times[PROGRESSED] = time.monotonic()


class _Desk:
    """Does the tasks, one after the other."""

    def __init__(
        self, worker: BaseWorker, memory: SharedMemory, post: ResultSender, interrupter: Interrupter
    ) -> None:
        self._memory = memory
        self._post = post
        self._interrupter = interrupter
        self._serial = 0
        self._plain = interrupter.limited(worker.process)
        self._sealed = interrupter.limited(lambda body: worker.process(self._open(body)))

    def work(self, feed: int) -> None:
        """Do all that the feed brings; return when it ends or the run stops."""
        for frame in frames(feed):
            plain, values = unpack(frame)
            process = self._plain if plain else self._sealed
            self._post.begin()
            self._interrupter.work(lambda: self._batch(process, values))  # noqa: B023 - called at once
            if self._interrupter.stopping:
                return
            self._memory.words[RUNNING] = -self._serial
            self._post.end()

    def _batch(self, process: Callable[[Any], Any], values: list[object]) -> None:
        words, times, post = self._memory.words, self._memory.times, self._post
        interrupter, append, clock = self._interrupter, post.values.append, time.monotonic
        serial = self._serial
        for value in values:
            # The time first: who reads the number then reads a time that belongs to it.
            times[STARTED] = now = clock()
            serial += 1
            words[RUNNING] = serial
            try:
                result = process(value)
                post.leave_if_disowned()
                if type(result) in NUMBERS:
                    append(result)
                else:
                    interrupter.interruptible = False
                    append(post.pack(result))
                    interrupter.interruptible = True
            except TaskInterrupted:
                raise
            except WorkerUnusable:
                interrupter.interruptible = False
                post.flush()  # what was done before it need not be done again
                raise
            except BaseException:  # noqa: BLE001 - the answer to this task; SystemExit, too
                post.leave_if_disowned()
                append(Failed(traceback.format_exc()))
            if now - post.flushed_at > FLUSH_S:
                interrupter.interruptible = False
                words[
                    RUNNING
                ] = -serial  # between tasks: if sending kills, it is not this one's doing
                post.flush()
                interrupter.interruptible = True
                if interrupter.stopping:
                    return
        self._serial = serial

    def _open(self, body: object) -> object:
        return from_body(cast("bytes | memoryview | Stored", body), self._memory.downwards)

"""Main function of a worker process: setup, all tasks from the parent, their results, cleanup."""

import os
import pickle
import threading
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from operator import attrgetter
from pathlib import Path
from typing import Any, NamedTuple

from virnucpro.dispatch.codec import (
    NUMBERS,
    TIMED_OUT,
    Body,
    Encoded,
    Failed,
    as_body,
    from_body,
    is_short,
    pack_answers,
    pack_bodies,
    pack_plain,
    unpack,
)
from virnucpro.dispatch.worker import BaseWorker, WorkerUnusable, file_of, import_file
from virnucpro.runtime.messages import Report, WorkerChannel
from virnucpro.runtime.shared import Region, Ring, SharedMemory
from virnucpro.runtime.signals import call_on_alarm, call_on_stop, ignore_stops, set_alarm

FLUSH_S = 0.002
"""Maximum seconds that a result waits for further results of its batch."""

_ROOM_TICK_S = 0.001
"""Seconds between two looks for space in the ring. The parent reads as much as is in the ring."""


class Tag:
    """First byte of a message from a worker, which defines the type of the message."""

    READY = b"R"
    SETUP_FAILED = b"S"
    ANSWERS = b"A"
    CLEANUP_FAILED = b"C"


class ResultSender:
    """Collects results and sends them in batches.

    A separate thread sends finished results during a slow task.

    Parameters
    ----------
    channel
        The pipe to the parent.
    ring
        Ring buffer in shared memory for large results.
    beat
        Function that records progress; it is called at each step of sending a result.
    """

    def __init__(
        self,
        channel: WorkerChannel,
        ring: Ring,
        beat: Callable[[], object],
    ) -> None:
        self.values: list[object] = []
        self.stopping: Callable[[], bool] = lambda: False
        self.flushed_at = time.monotonic()
        self._disowned = False
        self._channel = channel
        self._ring = ring
        self._beat = beat
        self._lock = threading.Lock()
        self._busy = threading.Event()
        threading.Thread(target=self._flush_late, name="virnucpro-post", daemon=True).start()

    def disown(self) -> None:
        """Mark this process as a fork of the worker, which must not send results."""
        self._disowned = True

    def leave_if_disowned(self) -> None:
        """Exit this process if it is a fork of the worker; only the worker itself sends results."""
        if self._disowned:
            os._exit(0)

    def report(self, tag: bytes, text: str = "") -> None:
        """Send a message about the worker's state, with an optional error text."""
        self._channel.send(Report(tag + text.encode("utf-8", "backslashreplace")))

    def begin(self) -> None:
        """Record the start of a batch of tasks; until `end`, a thread sends finished results."""
        self.flushed_at = time.monotonic()
        self._busy.set()

    def end(self) -> None:
        """Send the remaining results at the end of a batch of tasks."""
        self._busy.clear()
        self.flush()

    def flush(self) -> None:
        """Send all finished results in the order of the tasks."""
        with self._lock:
            # The other thread may append at the same time: remove only the copied values.
            values = self.values[:]
            if not values:
                return
            del self.values[: len(values)]
            now = time.monotonic()
            seconds, self.flushed_at = now - self.flushed_at, now
            plain = pack_plain(values)
            frame = (
                pack_bodies([self._body(value) for value in values]) if plain is None else [plain]
            )
            self._beat()  # large results are copied once more before their first byte is sent
            answers = (Tag.ANSWERS, pack_answers(len(values), seconds), *frame)
            self._channel.send(Report(b"".join(answers)))

    def pack(self, result: object) -> object:
        """Prepare a result for sending; return short strings, short bytes and `Failed` unchanged.

        Any other result is pickled immediately and returned as `Encoded`. Later changes of the
        result then have no effect, and a crash during pickling is attributed to the right task.
        """
        if is_short(result) or isinstance(result, Failed):
            return result
        self._beat()
        return Encoded(as_body(result, self._place))

    def _body(self, value: object) -> Body:
        if isinstance(value, Encoded):
            return value.body
        return value if isinstance(value, Failed) else pickle.dumps(value, 5)

    def _place(self, pieces: Sequence[memoryview]) -> Region | None:
        """Copy `pieces` into the ring buffer in shared memory; wait for space if necessary.

        Return the region of the copies; None if the pieces are too large or the run stops.
        """
        if not self._ring.fits(pieces):
            return None
        while (region := self._ring.put(pieces)) is None and not self.stopping():
            self.flush()  # the parent frees only the space of results that it has received
            time.sleep(_ROOM_TICK_S)
        return region

    def _flush_late(self) -> None:
        while True:
            self._busy.wait()
            time.sleep(FLUSH_S)
            if self.values and time.monotonic() - self.flushed_at > FLUSH_S:
                self.flush()


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

    def run_interruptible(self, batch: Callable[[], None]) -> None:
        """Call the function `batch`, which runs a batch of tasks; SIGTERM interrupts this call."""
        self.interruptible = True
        try:
            if not self.stopping:
                batch()
        except TaskInterrupted:
            if not self.stopping:
                raise
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
"""Index of the shared number of the running task, from 1; negative between tasks."""

STARTED = 0
"""Index of the shared time at which the running task started (seconds, monotonic clock)."""

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
    memory = SharedMemory(shared)
    beat = partial(_beat, memory.times)
    sender = ResultSender(channel, memory.upwards, beat)
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
    _TaskLoop(worker, memory, sender, interrupter).run(channel)
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

    def run(self, channel: WorkerChannel) -> None:
        """Run the parent's tasks until it sends an empty message or ends, or the run stops."""
        while message := channel.receive():
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
            now = clock()
            if now - sender.flushed_at > FLUSH_S:
                # A long task is sent before the next, so that `seconds` is its own duration.
                interrupter.interruptible = False
                words[RUNNING] = -serial  # if the worker dies in the sending, no task is the cause
                sender.flush()
                interrupter.interruptible = True
                if interrupter.stopping:
                    return
                now = clock()
            # First the time, then the number: a reader of the number gets this task's time.
            times[STARTED] = now
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
        self._serial = serial

"""The parent's side of one worker: its process, and the tasks it has been given."""

import os
import time
import traceback
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from pathlib import Path
from typing import NamedTuple

from virnucpro.dispatch.codec import (
    Body,
    Failed,
    Stored,
    as_body,
    from_body,
    pack_bodies,
    pack_plain,
    unpack,
    unpack_answers,
)
from virnucpro.dispatch.pacing import Pace
from virnucpro.dispatch.protocol import Answer, Answers, TaskError, TaskStarted, TaskTimeout
from virnucpro.dispatch.result_sender import WAITING
from virnucpro.dispatch.rules import Rules
from virnucpro.dispatch.stream import Tasks
from virnucpro.dispatch.worker_main import PROGRESSED, RUNNING, STARTED, Assignment, serve
from virnucpro.runtime.child import Setup
from virnucpro.runtime.feed import Feed
from virnucpro.runtime.process import Child, HandedOver
from virnucpro.runtime.shared import Region, SharedMemory
from virnucpro.runtime.status import Death, exit_text
from virnucpro.runtime.supervisor import Supervisor
from virnucpro.runtime.watchdog import Watched

__all__ = ["LATE_TASK", "Ending", "LastTask", "State", "Work", "WorkerHandle", "WorkerSlot"]

LATE_TASK = "it did not end its task"
"""Fault of a worker that exceeds the time limit of its task."""


class Work(NamedTuple):
    """What a worker is doing: the task, and since when by the monotonic clock, in seconds."""

    task_id: int
    since: float


class LastTask(NamedTuple):
    """The number of the last task that a worker had begun, or None, and whether it still ran."""

    serial: int | None
    running: bool


class Ending(NamedTuple):
    """Why the parent kills a worker.

    Attributes
    ----------
    serial
        Number of the task that it is killed for, 0 for none.
    why
        In words.
    timed_out
        Whether that task took longer than its time limit, which is its answer.
    """

    serial: int
    why: str
    timed_out: bool


class State(Enum):
    """Where a worker stands."""

    STARTING = auto()
    READY = auto()
    FAILED = auto()
    """Its set-up failed: it will end by itself."""
    ENDING = auto()
    """It was told that there is no more work."""


@dataclass(frozen=True, slots=True)
class WorkerSlot:
    """What stays the same when a worker is replaced.

    Attributes
    ----------
    worker_id
        Differs from place to place, even on one device.
    assignment
        What the worker is told.
    environment
        Variables to set in its process: the device mask.
    log
        Takes its output, or None to leave it where it is.
    """

    worker_id: int
    assignment: Assignment
    environment: Mapping[str, str]
    log: Path | None


@dataclass(slots=True)
class _Batch:
    ids: range | list[int]
    data: list[object]
    done: int = 0


class WorkerHandle:
    """The parent's side of one worker, from the start of its process to its end.

    Parameters
    ----------
    slot
        The worker's constant part.
    most
        Maximum number of tasks in a batch, as for `Pace`.
    """

    def __init__(self, slot: WorkerSlot, most: int) -> None:
        self.slot = slot
        self.worker_id = slot.worker_id
        self.gpu_id = slot.assignment.gpu_id
        self.state = State.STARTING
        self.since = time.monotonic()
        self.answered = 0
        self._reported = 0
        self.ending: Ending | None = None
        self.last_words = ""
        self.finished = False
        self.alone = False
        self._child: Child | None = None
        self._pace = Pace(most)
        self._batches: deque[_Batch] = deque()
        self._outstanding = 0
        self._memory = SharedMemory()
        self._space = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self.feed = Feed()

    def start(self, children: Supervisor, n_workers: int) -> None:
        """Start the process; for errors see `Supervisor.start`."""
        slot = self.slot
        setup = Setup(slot.worker_id, n_workers, os.getpid(), slot.environment, slot.log)
        arguments = (
            slot.assignment,
            self.feed.childs_end,
            self._memory.childs_end,
            HandedOver(self._space),
        )
        name = f"virnucpro-worker-{slot.worker_id}"
        self._child = children.start(name, setup, serve, arguments)
        self.feed.started()
        self._memory.started()

    def enter(self, state: State) -> None:
        """Change the state."""
        self.state, self.since = state, time.monotonic()

    @property
    def outstanding(self) -> int:
        """Tasks that it has and has not answered."""
        return self._outstanding

    @property
    def running(self) -> int | None:
        """The number, from 1 on, of the task that it runs, or None."""
        serial: int = self._memory.words[RUNNING]
        return serial if serial > self.answered else None

    def last_task(self) -> LastTask:
        """Return the last task, for `Blame`."""
        return LastTask(self.begun, self.running is not None)

    @property
    def begun(self) -> int | None:
        """The number of the last task that it began, unless that is answered.

        A task may break its worker after it has returned: its result then never comes.
        """
        serial: int = abs(self._memory.words[RUNNING])
        return serial if self.answered < serial <= self.answered + self._outstanding else None

    def deadlines(self, rules: Rules, *, all_answered: bool) -> Iterator[Watched]:
        """Yield the deadlines that apply now."""
        limits: list[tuple[str, float | None, object]] = []
        if self.state is State.STARTING:
            limits = [("it did not set up", rules.setup_timeout, None)]
            if all_answered:
                fault = "all tasks were answered, and it did not set up"
                limits.append((fault, rules.cleanup_timeout, None))
        elif self.state is not State.READY:
            limits = [("it did not end", rules.cleanup_timeout, self.state)]
        elif self._outstanding:
            assert self._child is not None
            memory, serial = self._memory, self.running
            progress = memory.words[RUNNING], memory.times[PROGRESSED]
            # Bytes in either pipe: the worker makes progress, or waits for the parent.
            transfer = self._child.reads, self.feed.writes
            limits = [("it made no progress", rules.progress_timeout, (progress, transfer))]
            if serial is not None:
                limits.append((LATE_TASK, rules.task_limit, serial))
        for fault, limit, sign in limits:
            if limit is not None:
                yield Watched(self.worker_id, fault, limit, sign)

    def how_it_ended(self, death: Death) -> str:
        """Return the end of the process in words, with its log and its last words."""
        how = exit_text(death.code)
        if self.ending is not None:
            how = f"was ended: {self.ending.why}"
        elif how.startswith("killed"):
            how = f"was {how}"
        log = self.slot.log
        where = "" if log is None or str(log) == os.devnull else f" (its output: {log})"
        return f"worker {self.worker_id} {how}{where}.\n{self.last_words}".rstrip()

    @property
    def started_at(self) -> float:
        """When the running task began, by the monotonic clock."""
        at: float = self._memory.times[STARTED]
        return at

    @property
    def wanted(self) -> int:
        """How many tasks to give it now."""
        if self.state is not State.READY or self.alone:
            return 0
        return self._pace.wanted(self._outstanding)

    @property
    def idle(self) -> bool:
        """Whether it could work and has nothing to do."""
        return self.state is State.READY and not self._outstanding

    def give(self, tasks: Tasks) -> list[TaskError]:
        """Send tasks; return those that cannot be sent, which are answered by that."""
        ids, data = tasks
        plain = pack_plain(data)
        refused: list[TaskError] = []
        frame: list[bytes | memoryview] = [] if plain is None else [plain]
        if plain is None:
            bodies = [as_body(one, self._place) for one in data]
            refused = [
                TaskError(task_id, body.traceback or "", self.worker_id)
                for task_id, body in zip(ids, bodies, strict=True)
                if isinstance(body, Failed)
            ]
            if refused:
                kept = [n for n, body in enumerate(bodies) if not isinstance(body, Failed)]
                ids, data = [ids[n] for n in kept], [data[n] for n in kept]
                bodies = [bodies[n] for n in kept]
            frame = pack_bodies(bodies)
        if data:
            self._batches.append(_Batch(ids, data))
            self._outstanding += len(data)
            self.feed.send(*frame)
        return refused

    def take(self, payload: memoryview, timeout: float | None) -> Iterator[Answer]:
        """Yield the answers of a message."""
        count, seconds, frame = unpack_answers(payload)
        if not count:
            return
        self._pace.note(count, seconds)
        self.alone = False
        plain, values = unpack(frame)
        while values:
            batch = self._batches[0]
            fresh = batch.ids[batch.done : batch.done + len(values)]
            some, values = values[: len(fresh)], values[len(fresh) :]
            batch.done += len(some)
            if batch.done == len(batch.ids):
                self._batches.popleft()
            self._outstanding -= len(some)
            self.answered += len(some)
            if plain:
                yield Answers(fresh, some, self.worker_id)
            else:
                for task_id, body in zip(fresh, some, strict=True):
                    yield self._answer(task_id, body, timeout)  # type: ignore[arg-type]

    def ids_between(self, first: int, stop: int) -> list[int]:
        """Ids of its tasks after the number `first`, up to the number `stop`, none answered."""
        ids = [task_id for batch in self._batches for task_id in batch.ids[batch.done :]]
        return ids[first - self.answered : stop - self.answered]

    def starts(self, until: int | None) -> Iterator[TaskStarted]:
        """Yield the starts of tasks up to the number `until`, once each."""
        if until is not None and until > self._reported:
            ids = self.ids_between(self._reported, until)
            self._reported = until
            for task_id in ids:
                yield TaskStarted(task_id, self.worker_id)

    def look(self) -> Work | None:
        """Say what it is doing now. From any thread."""
        try:
            serial, since = self.running, self.started_at
            ids = [] if serial is None else self.ids_between(serial - 1, serial)
        # Race: the memory was closed, or tasks were added, while this thread looked.
        except (ValueError, RuntimeError):
            return None
        return Work(ids[0], since) if ids else None

    def unanswered(self) -> list[tuple[int, object]]:
        """All tasks that it has and has not answered, in order."""
        return [
            pair
            for batch in self._batches
            for pair in zip(batch.ids[batch.done :], batch.data[batch.done :], strict=True)
        ]

    def close(self) -> None:
        """Free the memory and descriptors that are shared with the process."""
        self.feed.close()
        self._memory.close()
        os.close(self._space)

    def _place(self, pieces: Sequence[memoryview]) -> Sequence[Region] | None:
        ring = self._memory.downwards
        return ring.put(pieces) if ring.fits(pieces) else None

    def _answer(self, task_id: int, body: Body, timeout: float | None) -> Answer:
        if isinstance(body, Failed):
            if body.traceback is None:
                return TaskTimeout(task_id, timeout or 0.0, self.worker_id)
            return TaskError(task_id, body.traceback, self.worker_id)
        value = _value(body, self._memory)
        if isinstance(body, Stored) and self._memory.words[WAITING]:
            self._memory.words[WAITING] = 0
            os.eventfd_write(self._space, 1)
        if isinstance(value, Failed):
            return TaskError(task_id, value.traceback or "", self.worker_id)
        return Answers([task_id], [value], self.worker_id)


def _value(body: bytes | memoryview | Stored, memory: SharedMemory) -> object:
    try:
        return from_body(body, memory.upwards)
    except Exception:  # noqa: BLE001 - reading back runs the user's code, which may raise anything
        return Failed(
            f"{traceback.format_exc()}The result cannot be read back in the parent: return plain "
            "data, or objects of classes that the parent can import."
        )

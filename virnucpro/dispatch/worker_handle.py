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
from virnucpro.dispatch.protocol import Answers, Event, TaskError, TaskTimeout
from virnucpro.dispatch.result_sender import WAITING
from virnucpro.dispatch.standstills import Pulse
from virnucpro.dispatch.stream import Tasks
from virnucpro.dispatch.worker_main import PROGRESSED, RUNNING, STARTED, Assignment, serve
from virnucpro.runtime.child import Setup, run_child
from virnucpro.runtime.feed import Feed
from virnucpro.runtime.process import Child, HandedOver, Sealed, interrupts_held
from virnucpro.runtime.shared import Region, SharedMemory

__all__ = ["Ending", "State", "Work", "WorkerHandle", "WorkerSlot"]


class Work(NamedTuple):
    """What a worker is doing: the task, and since when by the monotonic clock, in seconds."""

    task_id: int
    since: float


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
    """One worker, from the start of its process to its end.

    Parameters
    ----------
    place
        What it is.
    places
        Number of workers.
    most
        Most tasks in a batch, as `Pace` takes it.
    """

    def __init__(self, place: WorkerSlot, places: int, most: int) -> None:
        self.place = place
        self.worker_id = place.worker_id
        self.state = State.STARTING
        self.since = time.monotonic()
        self.answered = 0
        self.reported = 0
        self.ended_for: Ending | None = None
        self.killed_at = 0.0
        self.words_of_end = ""
        self.finished = False
        self.confused = False
        self.alone = False
        self._pace = Pace(most)
        self._batches: deque[_Batch] = deque()
        self._outstanding = 0
        self._memory = SharedMemory()
        self._space = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self.feed = Feed()
        setup = Setup(place.worker_id, places, os.getpid(), place.environment, place.log)
        arguments = (
            place.assignment,
            self.feed.childs_end,
            self._memory.childs_end,
            HandedOver(self._space),
        )
        try:
            with interrupts_held():
                self.child = Child(
                    f"virnucpro-worker-{place.worker_id}",
                    run_child,
                    (Sealed((serve, arguments)), setup),
                )
        except BaseException:
            self._close_shared()
            raise
        self.feed.started()
        self._memory.started()

    @property
    def outstanding(self) -> int:
        """Tasks that it has and has not answered."""
        return self._outstanding

    @property
    def running(self) -> int | None:
        """The number, from 1 on, of the task that it runs, or None."""
        serial: int = self._memory.words[RUNNING]
        return serial if serial > self.answered else None

    @property
    def begun(self) -> int | None:
        """The number of the last task that it began, unless that is answered.

        A task may break its worker after it has returned: its result then never comes.
        """
        serial: int = abs(self._memory.words[RUNNING])
        return serial if self.answered < serial <= self.answered + self._outstanding else None

    @property
    def pulse(self) -> Pulse | None:
        """What changes when it gets on; None while nothing is expected of it."""
        if self.state is not State.READY or not self._outstanding or self.ended_for is not None:
            return None
        memory = self._memory
        return Pulse(self.answered, memory.words[RUNNING], memory.times[PROGRESSED])

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

    def take(self, payload: memoryview, timeout: float | None) -> Iterator[Event]:
        """Read answers."""
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
        """Give all descriptors back; a process that lives is killed."""
        self.child.kill()
        self.child.close()
        self._close_shared()

    def _close_shared(self) -> None:
        self.feed.close()
        self._memory.close()
        os.close(self._space)

    def _place(self, pieces: Sequence[memoryview]) -> Sequence[Region] | None:
        ring = self._memory.downwards
        return ring.put(pieces) if ring.fits(pieces) else None

    def _answer(self, task_id: int, body: Body, timeout: float | None) -> Event:
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

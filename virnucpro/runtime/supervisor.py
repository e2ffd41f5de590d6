"""The child processes of one parent: start, messages, deadlines, stop and end.

`GPUProcessCoordinator` and the dispatcher's `DispatchLoop` use this module and decide which child
to start, stop or restart.
"""

import atexit
import os
import selectors
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from enum import IntEnum

from virnucpro.errors import WorkerError
from virnucpro.runtime.child import STACKS_SIGNAL, Setup, WorkerFunction, run_child
from virnucpro.runtime.messages import Failure, Message, Started
from virnucpro.runtime.process import Child, Sealed, interrupts_held
from virnucpro.runtime.status import Death
from virnucpro.runtime.watchdog import Watchdog, Watched

TERMINATE_GRACE_S = 3.0
"""Seconds from SIGTERM to SIGKILL."""

KILL_GRACE_S = 10.0
"""Seconds after SIGKILL after which a living process is treated as stuck in the kernel."""

_CHECKS = 4
"""Maximum number of deadline checks per tick of the watchdog."""


class StopMethod(IntEnum):
    """How to stop a child: terminate it (SIGTERM), or kill it (SIGKILL)."""

    TERMINATE = 1
    KILL = 2


@dataclass(frozen=True, slots=True)
class Late:
    """Event: a child exceeded a deadline, and the parent terminates or kills it."""

    watched: Watched


Event = Message | Late | Death


@dataclass(slots=True)
class _Member:
    """State of one child process.

    Attributes
    ----------
    pipe
        Descriptor of the pipe; -1 when it is no longer read, since a new pipe may get its number.
    stop_method, due
        How the child was last stopped (None: not yet), and the time of the next step: SIGKILL
        after SIGTERM; no further wait after SIGKILL.
    started
        Whether the child is set up, so that it can write its stack traces on request.
    waits_for_room
        Whether there are unsent data for the child.
    """

    child: Child
    pipe: int
    stop_method: StopMethod | None = None
    due: float = float("inf")
    started: bool = False
    waits_for_room: bool = False


class Supervisor:
    """A set of child processes, supervised by one thread that calls `step` in a loop.

    The thread must not end before its children: the kernel kills the children of an ended thread.

    Parameters
    ----------
    deadlines
        Function that returns the deadlines that apply at the time of the call.
    limits
        All limits that `deadlines` may return, in seconds.
    on_hang
        How to stop a child that exceeds a deadline: with SIGTERM first, or directly with SIGKILL.
    """

    def __init__(
        self,
        deadlines: Callable[[], Iterable[Watched]],
        limits: Iterable[float | None],
        on_hang: StopMethod,
    ) -> None:
        self._deadlines = deadlines
        self._watchdog = Watchdog(limits)
        self._on_hang = on_hang
        self._members: dict[int, _Member] = {}
        self._woke = time.monotonic()
        self._away = 0.0
        self._checked_at = 0.0
        self._lock = threading.RLock()
        self._closing = False
        self._owner = os.getpid()
        self._selector = selectors.EpollSelector()
        self._wake = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._selector.register(self._wake, selectors.EVENT_READ)
        # Runs before multiprocessing's own exit hook, which waits for the children.
        atexit.register(self._kill_at_exit)

    @property
    def forked(self) -> bool:
        """Whether this process is a fork of the one whose children these are.

        It shares their pipes and the selector. It must neither stop nor read them.
        """
        return os.getpid() != self._owner

    @property
    def ranks(self) -> list[int]:
        """Ranks of the children that have not ended."""
        return list(self._members)

    def start(
        self,
        name: str,
        setup: Setup,
        function: WorkerFunction,
        arguments: tuple[object, ...],
    ) -> Child:
        """Start a child that calls ``function(rank, world_size, channel, *arguments)``; return it.

        Raises
        ------
        UsageError
            If the function or its arguments cannot be pickled.
        OSError
            If the system cannot start a process.
        RuntimeError
            If this process is exiting.
        """
        rank = setup.rank
        with self._lock, interrupts_held():
            if self._closing:
                raise RuntimeError("the program is exiting; it cannot start a worker.")
            child = Child(name, run_child, (Sealed((function, arguments)), setup))
            assert child.pipe is not None
            member = self._members[rank] = _Member(child, child.pipe.fileno())
            for descriptor in (child.sentinel, member.pipe):
                self._selector.register(descriptor, selectors.EVENT_READ, rank)
        return child

    def wake(self) -> None:
        """End the current or next sleep of `step`. Threads and signal handlers may call this."""
        with self._lock:
            if self._wake >= 0:
                os.eventfd_write(self._wake, 1)

    def end(self, rank: int, method: StopMethod = StopMethod.TERMINATE) -> None:
        """Terminate or kill a child, as given by `method`.

        The call has no effect on a child that already got the same `method` or was killed.
        """
        member = self._members[rank]
        if member.stop_method is None or member.stop_method < method:
            self._stop(member, method)

    def send(self, rank: int, *parts: bytes | memoryview) -> None:
        """Send data, joined from the given parts, to a child; `step` writes what does not fit now.

        The child gets them from `WorkerChannel.receive`.
        """
        self._await_room(rank, sent=self._members[rank].child.send(*parts))

    def distrust(self, rank: int) -> None:
        """Kill a child that sent invalid messages, and ignore its further messages."""
        member = self._members[rank]
        self._leave_pipe(member)
        member.child.close_pipe()
        self.end(rank, StopMethod.KILL)

    def step(self, timeout: float | None = None) -> Iterator[tuple[int, Event]]:
        """Sleep until an event occurs, at most `timeout` seconds; yield pairs of rank and event.

        An event is a message of the child, an exceeded deadline or the end of the process.
        """
        self._away += time.monotonic() - self._woke
        ready = self._selector.select(self._patience(timeout))
        self._woke = woke = time.monotonic()
        dead = []
        for key, events in ready:
            if key.data is None:
                os.eventfd_read(self._wake)
                continue
            member = self._members[key.data]
            if key.fd == member.child.sentinel:
                dead.append(key.data)
                continue
            if events & selectors.EVENT_WRITE:
                self._await_room(key.data, sent=member.child.flush())
            if events & selectors.EVENT_READ:
                yield from self._read(key.data, member.child.messages())
        for rank in dead:
            yield from self._remove_child(rank)
        # After the messages, which may be progress. Uses the wake time: later ones are unread.
        yield from self._end_late(woke)
        yield from self._kill_or_abandon()

    def close(self) -> None:
        """Kill the remaining children and close all descriptors. A second call has no effect."""
        if self._wake < 0:
            return
        for member in self._members.values():
            member.child.process.kill()
        deadline = time.monotonic() + KILL_GRACE_S
        for member in self._members.values():
            member.child.process.join(max(0.0, deadline - time.monotonic()))
            member.child.close()
        self._members.clear()
        atexit.unregister(self._kill_at_exit)
        with self._lock:
            self._selector.close()
            os.close(self._wake)
            self._wake = -1

    def _patience(self, timeout: float | None) -> float | None:
        times = [timeout, self._watchdog.tick if self._members else None]
        next_stop = min((member.due for member in self._members.values()), default=float("inf"))
        if next_stop < float("inf"):
            times.append(max(0.0, next_stop - time.monotonic()))
        return min((seconds for seconds in times if seconds is not None), default=None)

    def _read(self, rank: int, messages: Iterator[Message]) -> Iterator[tuple[int, Event]]:
        member = self._members[rank]
        try:
            for message in messages:
                if isinstance(message, Started):
                    member.started = True
                yield rank, message
        except WorkerError as error:
            yield rank, Failure(type(error).__name__, str(error), "")
            self.distrust(rank)
        if member.child.pipe is None:
            self._leave_pipe(member)

    def _remove_child(self, rank: int, *, stuck: bool = False) -> Iterator[tuple[int, Event]]:
        child = self._members[rank].child
        if not stuck:
            yield from self._read(rank, child.messages(dead=True))
        member = self._members.pop(rank)
        self._unwatch(child.sentinel)
        self._leave_pipe(member)
        death = Death(None if stuck else child.exit_code(), child.unfinished, stuck)
        child.close()
        yield rank, death

    def _await_room(self, rank: int, *, sent: bool) -> None:
        """Watch the pipe of a child also for room, until all data are `sent`."""
        member = self._members[rank]
        if member.waits_for_room == sent and member.pipe >= 0:
            member.waits_for_room = not sent
            room = 0 if sent else selectors.EVENT_WRITE
            self._selector.modify(member.pipe, selectors.EVENT_READ | room, rank)

    def _leave_pipe(self, member: _Member) -> None:
        self._unwatch(member.pipe)
        member.pipe = -1

    def _unwatch(self, descriptor: int) -> None:
        with suppress(KeyError, ValueError):  # ValueError: -1, a closed descriptor
            self._selector.unregister(descriptor)

    def _end_late(self, woke: float) -> Iterator[tuple[int, Event]]:
        tick = self._watchdog.tick
        if tick is None or woke < self._checked_at + tick / _CHECKS:
            return
        away, self._away, self._checked_at = self._away, 0.0, woke
        free = (
            deadline
            for deadline in self._deadlines()
            if deadline.rank in self._members and self._members[deadline.rank].stop_method is None
        )
        for watched, end in self._watchdog.check(free, woke, away):
            member = self._members[watched.rank]
            if end:
                self.end(watched.rank, self._on_hang)
                yield watched.rank, Late(watched)
            elif member.started:  # before its setup, the signal would kill the child
                member.child.signal(STACKS_SIGNAL)

    def _kill_or_abandon(self) -> Iterator[tuple[int, Event]]:
        now = time.monotonic()
        for rank, member in list(self._members.items()):
            if now >= member.due and member.stop_method is StopMethod.TERMINATE:
                self._stop(member, StopMethod.KILL)
            elif now >= member.due:
                yield from self._remove_child(rank, stuck=True)

    def _stop(self, member: _Member, method: StopMethod) -> None:
        member.stop_method = method
        if method is StopMethod.TERMINATE:
            member.child.process.terminate()
            member.due = time.monotonic() + TERMINATE_GRACE_S
        else:
            member.child.process.kill()
            member.due = time.monotonic() + KILL_GRACE_S

    def _kill_at_exit(self) -> None:
        if not self.forked:  # a fork inherits the exit hooks
            with self._lock:
                self._closing = True
                for member in list(self._members.values()):
                    member.child.process.kill()

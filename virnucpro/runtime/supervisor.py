"""The one wait loop: a thread that starts the children, listens to them and sees them die."""

import atexit
import os
import threading
import time
from collections.abc import Iterable
from dataclasses import dataclass

from virnucpro.errors import WorkerError
from virnucpro.runtime.child import Setup, WorkerFunction, run_child
from virnucpro.runtime.messages import Failure, Message, Report
from virnucpro.runtime.process import (
    Child,
    Sealed,
    SpawnProcess,
    keep_interrupts_from_children,
    wait_for_any,
)
from virnucpro.runtime.results import ResultsQueue
from virnucpro.runtime.status import WorkerState, WorkerStatus, after_exit, after_message

__all__ = ["KILL_GRACE_S", "TERMINATE_GRACE_S", "Order", "Supervisor"]

TERMINATE_GRACE_S = 5.0
"""Seconds that a worker has to end after SIGTERM, before it gets SIGKILL."""

KILL_GRACE_S = 10.0
"""Seconds that the kernel has to carry a SIGKILL out, before the process counts as stuck."""


@dataclass(frozen=True, slots=True)
class Order:
    """What one child does: ``function(rank, world_size, outbox, *arguments)``, so set up."""

    setup: Setup
    function: WorkerFunction
    arguments: tuple[object, ...]


class Supervisor:
    """Starts children and follows each to its end, in a thread of its own.

    The thread lives as long as a child does: the kernel kills children whose starting thread has
    ended. It sleeps until a pipe speaks or a process dies, and takes reports of any size into
    memory at once, so that no child ever waits for somebody to read.

    Parameters
    ----------
    orders
        One a child; their ranks differ.
    results
        Takes the reports.
    """

    def __init__(self, orders: Iterable[Order], results: ResultsQueue) -> None:
        self._orders = tuple(orders)
        self._results = results
        self._children: dict[int, Child] = {}
        self._statuses: dict[int, WorkerStatus] = {}
        self._processes: dict[int, SpawnProcess] = {}
        self._changed = threading.Condition()
        self._started = False
        self._over = False
        self._stopping = False
        self._error: BaseException | None = None
        self._kill_at: float | None = None
        self._stopped: frozenset[int] = frozenset()
        self._owner = os.getpid()
        self._wake = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._thread = threading.Thread(target=self._run, name="virnucpro-supervisor", daemon=True)

    @property
    def statuses(self) -> dict[int, WorkerStatus]:
        """What is known of each worker now, by rank."""
        with self._changed:
            return dict(self._statuses)

    @property
    def processes(self) -> dict[int, SpawnProcess]:
        """The processes, by rank."""
        return dict(self._processes)

    def start(self) -> None:
        """Start every child; return when all are started.

        Raises
        ------
        UsageError
            When a function or its arguments cannot be pickled.
        OSError
            When the system refuses a process.
        RuntimeError
            When it refuses a thread.

        Whatever is raised, no child is left.
        """
        # An exit of this process waits for its children; runs before multiprocessing's own such
        # hook.
        atexit.register(self._stop_at_exit)
        try:
            self._thread.start()
            with self._changed:
                self._changed.wait_for(lambda: self._started or self._over)
        except BaseException:  # an interrupt, or a thread that the system refused
            if self._thread.ident is None:
                self._end()
            else:
                self.stop()
            raise
        if self._error is not None:
            raise self._error

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until every child has ended, or for `timeout` seconds; say whether they have.

        Raises
        ------
        WorkerError
            When the supervision itself broke down; the children were killed.
        """
        with self._changed:
            self._changed.wait_for(lambda: self._over, timeout)
            if self._error is not None:
                raise WorkerError(
                    "the supervision of the workers broke down; report this"
                ) from self._error
            return self._over

    def stop(self) -> None:
        """End every child that lives: SIGTERM, then SIGKILL. Their deaths are known on return.

        Raises
        ------
        WorkerError
            When a process outlives SIGKILL: it is stuck in the kernel.
        """
        with self._changed:
            if not self._over:
                self._stopping = True
                os.eventfd_write(self._wake, 1)
            self._changed.wait_for(lambda: self._over, TERMINATE_GRACE_S + KILL_GRACE_S)
            left = [status for status in self._statuses.values() if not status.ended]
        if left:
            names = ", ".join(f"worker {status.rank} (pid {status.pid})" for status in left)
            raise WorkerError(
                f"{names} did not die of SIGKILL within {KILL_GRACE_S:.0f} s: stuck in the "
                "kernel, in a driver or a file system. Look at dmesg; the node may need a restart."
            )

    def _stop_at_exit(self) -> None:
        # A process that was forked from the owner inherits its exit hooks, but not its children.
        if os.getpid() == self._owner:
            self.stop()

    def _run(self) -> None:
        try:
            keep_interrupts_from_children()
            for order in self._orders:
                self._start_child(order)
            with self._changed:
                self._started = True
                self._changed.notify_all()
            while self._children:
                self._step()
        except BaseException as error:  # noqa: BLE001 - handed to whoever waits, who would wait for ever otherwise
            self._error = error
            self._kill_all()
        finally:
            self._end()

    def _start_child(self, order: Order) -> None:
        rank, now = order.setup.rank, time.monotonic()
        child = Child(
            f"virnucpro-rank-{rank:04d}",
            run_child,
            Sealed((order.function, order.arguments)),
            (order.setup,),
        )
        self._results.add_senders(1)
        self._children[rank] = child
        self._processes[rank] = child.process
        self._note(WorkerStatus(rank, WorkerState.STARTING, child.pid, now, now))

    def _step(self) -> None:
        """Sleep until something happens, then see to it."""
        pipes = [child.pipe for child in self._children.values() if child.pipe is not None]
        sentinels = [child.sentinel for child in self._children.values()]
        ready = wait_for_any([self._wake, *pipes, *sentinels], self._patience())
        for rank, child in list(self._children.items()):
            if child.pipe in ready:
                self._listen(rank, child)
            if child.sentinel in ready:
                self._listen(rank, child, to_the_end=True)
                self._bury(rank, child)
        if self._wake in ready:
            os.eventfd_read(self._wake)
        if self._stopping:
            self._climb_stop_ladder()

    def _patience(self) -> float | None:
        return None if self._kill_at is None else max(0.0, self._kill_at - time.monotonic())

    def _climb_stop_ladder(self) -> None:
        now = time.monotonic()
        if self._kill_at is None:
            self._kill_at = now + TERMINATE_GRACE_S
            # A worker that has told of its failure failed, whatever hurries its end.
            self._stopped = frozenset(
                rank for rank in self._children if not self._statuses[rank].kind
            )
            for child in self._children.values():
                child.terminate()
        elif now >= self._kill_at:
            self._kill_at = now + KILL_GRACE_S
            for child in self._children.values():
                child.kill()

    def _listen(self, rank: int, child: Child, *, to_the_end: bool = False) -> None:
        try:
            for message in child.last_messages() if to_the_end else child.messages():
                self._take(rank, message)
        except WorkerError as error:
            self._take(rank, Failure(type(error).__name__, str(error), ""))
            child.close_pipe()
            child.kill()

    def _take(self, rank: int, message: Message) -> None:
        if isinstance(message, Report):
            self._results.add(rank, message.payload)
        self._note(after_message(self._statuses[rank], message, time.monotonic()))

    def _bury(self, rank: int, child: Child) -> None:
        status = after_exit(
            self._statuses[rank],
            child.exit_code(),
            time.monotonic(),
            unfinished=child.unfinished,
            stopped=rank in self._stopped,
        )
        del self._children[rank]
        child.close()
        self._results.add_senders(-1)
        self._note(status)

    def _note(self, status: WorkerStatus) -> None:
        with self._changed:
            self._statuses[status.rank] = status
            self._changed.notify_all()

    def _kill_all(self) -> None:
        """End the children of a supervision that broke down: hears nobody, trusts nothing."""
        for child in self._children.values():
            child.kill()
        deadline = time.monotonic() + KILL_GRACE_S
        for rank, child in list(self._children.items()):
            if wait_for_any([child.sentinel], max(0.0, deadline - time.monotonic())):
                self._bury(rank, child)

    def _end(self) -> None:
        atexit.unregister(self._stop_at_exit)
        with self._changed:
            os.close(self._wake)
            self._over = True
            self._changed.notify_all()

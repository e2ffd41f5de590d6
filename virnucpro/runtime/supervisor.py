"""The one wait loop: starts the children, listens to them, ends those that hang, sees them die."""

import atexit
import os
import threading
import time
from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace

from virnucpro.errors import UsageError, WorkerError
from virnucpro.runtime.child import STACKS_SIGNAL, Setup, WorkerFunction, run_child
from virnucpro.runtime.deadlines import NEVER, Deadlines
from virnucpro.runtime.messages import Failure, Message, Report
from virnucpro.runtime.process import (
    Child,
    Sealed,
    SpawnProcess,
    keep_interrupts_from_children,
    wait_for_any,
)
from virnucpro.runtime.results import ResultsQueue
from virnucpro.runtime.status import (
    WorkerState,
    WorkerStatus,
    after_exit,
    after_message,
    moved_on,
    waiting,
)
from virnucpro.runtime.watchdog import Graces, Measure, Step, Watchdog

__all__ = ["KILL_GRACE_S", "TERMINATE_GRACE_S", "Order", "Supervisor"]

TERMINATE_GRACE_S = 5.0
"""Seconds that a worker has to end after SIGTERM, before it gets SIGKILL."""

KILL_GRACE_S = 10.0
"""Seconds that the kernel has to carry a SIGKILL out, before the process counts as stuck."""

STACKS_GRACE_S = 1.0
"""Seconds that a worker which hangs has to write its stacks, before it gets SIGTERM."""

_TICK_S = 1.0
"""Longest sleep in seconds while there are deadlines; nobody is charged with what goes beyond."""


@dataclass(frozen=True, slots=True)
class Order:
    """What one child does: ``function(rank, world_size, outbox, *arguments)``, so set up."""

    setup: Setup
    function: WorkerFunction
    arguments: tuple[object, ...]


class Supervisor:
    """Starts children and follows each to its end, in a thread of its own.

    The thread lives as long as a child does: the kernel kills children whose starting thread has
    ended. It sleeps until a pipe speaks, a process dies or something is due, and takes reports of
    any size into memory at once, so that no child ever waits for somebody to read.

    Parameters
    ----------
    orders
        One a child; their ranks differ.
    results
        Takes the reports.
    deadlines
        Longest times without progress; who exceeds one is ended, and failed.
    """

    def __init__(
        self,
        orders: Iterable[Order],
        results: ResultsQueue,
        deadlines: Deadlines = NEVER,
    ) -> None:
        self._orders = tuple(orders)
        self._results = results
        self._hangs = Watchdog(deadlines, Graces(STACKS_GRACE_S, TERMINATE_GRACE_S, KILL_GRACE_S))
        self._children: dict[int, Child] = {}
        self._statuses: dict[int, WorkerStatus] = {}
        self._processes: dict[int, SpawnProcess] = {}
        self._scheduled: list[tuple[float, Order]] = []
        self._unneeded: dict[int, str] = {}
        self._changed = threading.Condition()
        self._changes = 0
        self._started = False
        self._over = True
        self._stopping = False
        self._error: BaseException | None = None
        self._kill_at: float | None = None
        self._stopped: frozenset[int] = frozenset()
        self._owner = os.getpid()

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
        try:
            self._start_thread()
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

    def start_again(self, order: Order, delay: float = 0.0) -> None:
        """Start the child of an ended rank anew, `delay` seconds from now.

        One that the system refuses then is a failed attempt.

        Raises
        ------
        UsageError
            When the rank is at work, or all are being stopped.
        """
        rank = order.setup.rank
        with self._changed:
            status = self._statuses.get(rank)
            if self._stopping or status is None or not status.ended:
                raise UsageError(f"worker {rank} has not ended, or all are being stopped.")
            self._note(waiting(status))
            self._scheduled.append((time.monotonic() + delay, order))
            if not self._over:
                os.eventfd_write(self._wake, 1)
                return
            try:
                self._start_thread()
            except BaseException:  # an interrupt, or a thread that the system refused
                if self._thread.ident is None:
                    self._cancel_scheduled()
                    self._end()
                raise

    def stop_one(self, rank: int, why: str) -> None:
        """End the child of one rank, by force where it must be; return at once.

        One that waits for its restart does not start. Nothing happens where it has ended.
        """
        with self._changed:
            if not self._over:
                self._unneeded[rank] = why
                os.eventfd_write(self._wake, 1)

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until every child has ended, or for `timeout` seconds; say whether they have.

        Raises
        ------
        WorkerError
            When the supervision itself broke down; the children were killed.
        """
        with self._changed:
            self._changed.wait_for(lambda: self._over, timeout)
            self._refuse_broken()
            over, thread = self._over, self._thread
        if over:
            _see_off(thread)
        return over

    def wait_for_change(self, seen: int, timeout: float | None = None) -> int:
        """Wait until a worker has come into another state, or for `timeout` seconds.

        Parameters
        ----------
        seen
            What the last call returned, 0 for the first one.

        Returns
        -------
        Number of changes so far.

        Raises
        ------
        WorkerError
            When the supervision itself broke down; the children were killed.
        """
        with self._changed:
            self._changed.wait_for(lambda: self._changes != seen, timeout)
            self._refuse_broken()
            return self._changes

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
            over, thread = self._over, self._thread
        if over:
            _see_off(thread)
        if left:
            names = ", ".join(f"worker {status.rank} (pid {status.pid})" for status in left)
            raise WorkerError(
                f"{names} did not die of SIGKILL within {KILL_GRACE_S:.0f} s: stuck in the "
                "kernel, in a driver or a file system. Look at dmesg; the node may need a restart."
            )

    def _refuse_broken(self) -> None:
        if self._error is not None:
            raise WorkerError(
                "the supervision of the workers broke down; report this"
            ) from self._error

    def _stop_at_exit(self) -> None:
        # A process that was forked from the owner inherits its exit hooks, but not its children.
        if os.getpid() == self._owner:
            self.stop()

    def _start_thread(self) -> None:
        """Begin, or begin again when all children had ended and the thread with them."""
        self._wake = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._over = False
        # An exit of this process waits for its children; runs before multiprocessing's own such
        # hook.
        atexit.register(self._stop_at_exit)
        self._thread = threading.Thread(target=self._run, name="virnucpro-supervisor", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            keep_interrupts_from_children()
            for order in self._orders:
                self._start_child(order)
            self._orders = ()
            with self._changed:
                self._started = True
                self._changed.notify_all()
            while not self._all_done():
                self._step()
        except BaseException as error:  # noqa: BLE001 - handed to whoever waits, who would wait for ever otherwise
            self._error = error
            self._kill_all()
            self._end()

    def _all_done(self) -> bool:
        """End where nothing is left to do: in one step with the look, or an order would be lost."""
        with self._changed:
            done = not self._children and not self._scheduled
            if done:
                self._end()
            return done

    def _start_child(self, order: Order) -> None:
        rank, now = order.setup.rank, time.monotonic()
        child = self._child(order)
        self._results.add_senders(1)
        self._children[rank] = child
        self._processes[rank] = child.process
        self._hangs.begin(rank, now)
        self._stopped -= {rank}
        status = WorkerStatus(rank, WorkerState.STARTING, child.pid, now, now)
        former = self._statuses.get(rank)
        if former is not None:
            status = replace(
                status,
                attempt=former.attempt + 1,
                faults=former.faults,
                done=former.done,
                total=former.total,
            )
        self._note(status)

    def _child(self, order: Order) -> Child:
        sealed = Sealed((order.function, order.arguments))
        return Child(f"virnucpro-rank-{order.setup.rank:04d}", run_child, (sealed, order.setup))

    def _start_what_is_due(self) -> None:
        now = time.monotonic()
        with self._changed:
            due = [order for at, order in self._scheduled if at <= now]
            self._scheduled = [(at, order) for at, order in self._scheduled if at > now]
        for order in due:
            try:
                self._start_child(order)
            except OSError as error:
                former = self._statuses[order.setup.rank]
                reason = f"could not be started again: {error}"
                self._note(
                    replace(
                        former,
                        state=WorkerState.FAILED,
                        attempt=former.attempt + 1,
                        kind=type(error).__name__,
                        reason=reason,
                        place=(),
                        begun={},
                    )
                )

    def _step(self) -> None:
        """Sleep until something happens or is due, then see to it."""
        pipes = [child.pipe for child in self._children.values() if child.pipe is not None]
        sentinels = [child.sentinel for child in self._children.values()]
        patience, asleep = self._patience(), time.monotonic()
        ready = wait_for_any([self._wake, *pipes, *sentinels], patience)
        if patience is not None:
            late = time.monotonic() - asleep - patience
            if late > _TICK_S:  # this process was stopped; its children probably were, too
                self._hangs.excuse(late)
        for rank, child in list(self._children.items()):
            if child.pipe in ready:
                self._listen(rank, child)
            if child.sentinel in ready:
                self._listen(rank, child, to_the_end=True)
                self._bury(rank, child)
        if self._wake in ready:
            os.eventfd_read(self._wake)
        self._dismiss_unneeded()
        for step in self._hangs.steps(self._statuses, time.monotonic()):
            self._take_measure(step)
        if self._stopping:
            self._climb_stop_ladder()
        self._start_what_is_due()

    def _dismiss_unneeded(self) -> None:
        with self._changed:
            unneeded, self._unneeded = self._unneeded, {}
        for rank, why in unneeded.items():
            if rank in self._children and rank not in self._stopped:
                self._stopped |= {rank}
                self._note(replace(self._statuses[rank], reason=why))
                self._hangs.dismiss(rank)
        self._cancel_scheduled(unneeded)

    def _patience(self) -> float | None:
        now = time.monotonic()
        with self._changed:
            times = [at for at, _ in self._scheduled]
        if self._kill_at is not None:
            times.append(self._kill_at)
        if not self._hangs.idle and self._children:
            times.append(now + _TICK_S)
        return max(0.0, min(times) - now) if times else None

    def _take_measure(self, step: Step) -> None:
        """Go one step further with a child that hangs."""
        child = self._children[step.rank]
        match step.measure:
            case Measure.ASK_FOR_STACKS:
                self._note(replace(self._statuses[step.rank], kind="Hang", reason=step.why))
                child.signal(STACKS_SIGNAL)
            case Measure.TERMINATE:
                child.terminate()
            case Measure.KILL:
                child.kill()
            case Measure.ABANDON:
                stuck = f"{step.why}; it is stuck in the kernel and outlives SIGKILL: see dmesg"
                self._note(replace(self._statuses[step.rank], reason=stuck))
                self._bury(step.rank, child)

    def _climb_stop_ladder(self) -> None:
        now = time.monotonic()
        if self._kill_at is None:
            self._kill_at = now + TERMINATE_GRACE_S
            # A worker that has told of its failure failed, whatever hurries its end.
            self._stopped |= frozenset(
                rank for rank in self._children if not self._statuses[rank].kind
            )
            self._cancel_scheduled()
            for child in self._children.values():
                child.terminate()
        elif now >= self._kill_at:
            self._kill_at = now + KILL_GRACE_S
            for child in self._children.values():
                child.kill()

    def _cancel_scheduled(self, ranks: Collection[int] | None = None) -> None:
        """Start no worker again that waits for it, or only none of these ranks."""
        with self._changed:
            for entry in list(self._scheduled):
                rank = entry[1].setup.rank
                if ranks is None or rank in ranks:
                    self._scheduled.remove(entry)
                    self._note(replace(self._statuses[rank], state=WorkerState.STOPPED))

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
        now, before = time.monotonic(), self._statuses[rank]
        after = after_message(before, message, now)
        if moved_on(before, after) and self._hangs.heard(rank, now):
            after = replace(after, kind="", reason="")
        self._note(after)

    def _bury(self, rank: int, child: Child) -> None:
        status = after_exit(
            self._statuses[rank],
            child.exit_code(),
            time.monotonic(),
            unfinished=child.unfinished,
            stopped=rank in self._stopped,
        )
        del self._children[rank]
        self._hangs.forget(rank)
        child.close()
        self._results.add_senders(-1)
        self._note(status)

    def _note(self, status: WorkerStatus) -> None:
        with self._changed:
            former = self._statuses.get(status.rank)
            self._statuses[status.rank] = status
            if former is None or former.state is not status.state:
                self._changes += 1
                self._changed.notify_all()

    def _kill_all(self) -> None:
        """End the children of a supervision that broke down: hears nobody, trusts nothing."""
        self._cancel_scheduled()
        for child in self._children.values():
            child.kill()
        deadline = time.monotonic() + KILL_GRACE_S
        for rank, child in list(self._children.items()):
            if wait_for_any([child.sentinel], max(0.0, deadline - time.monotonic())):
                self._bury(rank, child)

    def _end(self) -> None:
        with self._changed:
            if self._over:
                return
            atexit.unregister(self._stop_at_exit)
            os.close(self._wake)
            self._over = True
            self._changes += 1
            self._changed.notify_all()


def _see_off(thread: threading.Thread) -> None:
    """Wait for a thread that has only to return: until then it keeps the processes' descriptors."""
    if thread.ident is not None:
        thread.join()

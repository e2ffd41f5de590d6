"""The wait loop of a run: hands tasks out, takes answers in, sees workers die, replaces them.

All of it runs in the thread that iterates over `Engine.events`: nothing happens while that thread
is elsewhere, so a slow consumer holds the generator of tasks back, and no lock is needed.
"""

import atexit
import os
import select
import threading
import time
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass

from virnucpro.dispatch.codec import unpack_answers
from virnucpro.dispatch.protocol import (
    CleanupFailed,
    Event,
    SetupFailed,
    TaskError,
    TaskRetried,
    TaskStarted,
    TaskTimeout,
    WorkerDied,
    WorkerReady,
)
from virnucpro.dispatch.result_sender import Tag
from virnucpro.dispatch.standstills import Standstills
from virnucpro.dispatch.stream import Stream, Tasks
from virnucpro.dispatch.worker_handle import Ending, State, Work, WorkerHandle, WorkerSlot
from virnucpro.runtime.child import STACKS_SIGNAL
from virnucpro.runtime.messages import Failure, Finished, Message, Report
from virnucpro.runtime.status import exit_name
from virnucpro.runtime.watchdog import Measure

__all__ = [
    "ABANDON_S",
    "BARREN",
    "HARD_GRACE_S",
    "KEPT_S",
    "KEPT_TIMES",
    "STOP_GRACE_S",
    "Engine",
    "Rules",
]

HARD_GRACE_S = 1.0
"""Seconds that a task has to end after its time limit, before its worker is killed."""

STOP_GRACE_S = 2.0
"""Seconds that workers have to put away what they hold when a run is broken off."""

ABANDON_S = 10.0
"""Seconds that the kernel has to carry a SIGKILL out, before nobody waits for the process."""

BARREN = 3
"""So many times in a row may a worker die without having answered, or died of, a single task."""

KEPT_S = 1.0
"""Seconds that a task is kept at least for a worker that sets up while others are idle."""

KEPT_TIMES = 2.0
"""It is kept for so many times as long as those took to set up that have."""

_TICK_S = 0.05
"""Longest sleep in seconds while there are time limits, or starts to be told of."""


@dataclass(frozen=True, slots=True)
class Rules:
    """What a run goes by.

    Attributes
    ----------
    max_attempts
        How often a task may be begun whose workers die.
    task_timeout, setup_timeout, cleanup_timeout
        Seconds, or None for as long as it takes. Once all tasks are answered, a worker that still
        sets up has no longer than one that puts away.
    progress_timeout
        Seconds that a worker with tasks may show no progress, or None for as long as it takes.
    fair
        Whether each worker that still sets up is kept a task.
    tell_starts
        Whether `TaskStarted` is wanted.
    one_at_a_time
        Whether a worker gets a task only when it has answered the last one.
    """

    max_attempts: int
    task_timeout: float | None
    setup_timeout: float | None
    cleanup_timeout: float | None
    progress_timeout: float | None
    fair: bool
    tell_starts: bool
    one_at_a_time: bool = False


class Engine:
    """One run.

    Parameters
    ----------
    places
        The workers.
    stream
        The tasks; whoever consumes the events counts what was delivered there.
    rules
        What the run goes by.
    most
        Most tasks in a batch.
    """

    def __init__(
        self, places: Sequence[WorkerSlot], stream: Stream, rules: Rules, most: int
    ) -> None:
        self._places = places
        self._stream = stream
        self._rules = rules
        self._most = most
        self._seats: dict[int, WorkerHandle] = {}
        self._barren: dict[int, int] = {}
        self._standstills = Standstills(rules.progress_timeout)
        self._attempts: dict[int, int] = {}
        self._durations: dict[int, float] = {}
        self._slowest_setup = 0.0
        self._over_since: float | None = None
        self._woke = time.monotonic()
        self._failures: list[str] = []
        self._watched: dict[int, WorkerHandle] = {}
        self._lock = threading.RLock()
        self._wake = -1
        self._draining = False
        self._stopping = False
        self._broken_off = False
        self._gave_up = False
        self._owner = os.getpid()

    def at_work(self) -> dict[int, Work]:
        """Say what each worker is doing now, for those that are. From any thread."""
        seats = self._seats.copy().values()
        return {seat.worker_id: work for seat in seats if (work := seat.look()) is not None}

    def durations(self) -> dict[int, float]:
        """Say how long the last tasks took, in seconds each. From any thread."""
        return self._durations.copy()

    def drain(self) -> None:
        """Take no more tasks, answer those that were taken, then end. From any thread."""
        with self._lock:
            self._draining = True
            self._wake_up()

    def break_off(self) -> None:
        """End the run as an error would: the thread that runs it raises one. From any thread."""
        with self._lock:
            self._broken_off = True
            self._wake_up()

    def events(self) -> Generator[Event, None, None]:
        """Do the run, and tell what happens. Close it to break the run off.

        Raises
        ------
        RuntimeError
            When no worker is left, or the run was broken off.
        Exception
            What the generator of tasks raised, once all its tasks are answered.
        """
        self._poll = select.epoll()
        self._wake = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._poll.register(self._wake, select.EPOLLIN)
        atexit.register(self._kill_at_exit)
        try:
            for place in self._places:
                self._open(place)
            yield from self._work()
            yield from self._end()
            self._raise_what_is_left()
        finally:
            try:
                self._stop()
            finally:
                self._close()

    # --- the run

    def _work(self) -> Iterator[Event]:
        if self._rules.fair:
            yield from self._first_tasks()
        while not self._stream.over:
            if self._draining:
                self._stream.end()
            if self._stopping:
                raise RuntimeError("the program ends: the run was broken off.")
            if not self._seats:
                yield from self._give_up()
                return
            yield from self._hand_out()
            yield from self._hand_out_kept()
            if not self._stream.over:
                yield from self._look(0.0 if self._hungry else self._patience())

    def _first_tasks(self) -> Iterator[Event]:
        """Wait for the first worker; then keep a task for each of the others."""
        while self._seats and not self._draining:
            if any(seat.state is State.READY for seat in self._seats.values()):
                break
            yield from self._look(self._patience())
        starting = sum(seat.state is State.STARTING for seat in self._seats.values())
        yield from self._hand_out(once=True)
        self._stream.set_aside(starting)

    @property
    def _hungry(self) -> bool:
        seats, stream = self._seats.values(), self._stream
        if stream.has_suspects:
            return any(seat.idle for seat in seats)
        return stream.has_more and any(seat.wanted for seat in seats)

    def _hand_out(self, *, once: bool = False) -> Iterator[Event]:
        for seat in list(self._seats.values()):
            if (
                self._stream.has_suspects
            ):  # first of all: whoever is busy gets nothing more meanwhile
                if seat.idle:
                    yield from self._give(seat, self._stream.take_suspect())
                    seat.alone = not seat.idle
                continue
            wanted = min(1, seat.wanted) if once else seat.wanted
            if wanted and self._stream.has_more:
                tasks = self._stream.take(wanted)
                if tasks[1]:
                    yield from self._give(seat, tasks)

    def _hand_out_kept(self) -> Iterator[Event]:
        """Give idle workers what was kept for those that take too long to set up."""
        surplus = self._stream.kept - self._punctual if self._idle_beside_kept else 0
        for seat in list(self._seats.values()):
            if surplus > 0 and seat.idle:
                surplus -= 1
                yield from self._give(seat, self._stream.release())

    @property
    def _idle_beside_kept(self) -> bool:
        stream = self._stream
        return (
            stream.kept > 0
            and not stream.has_more
            and any(seat.idle for seat in self._seats.values())
        )

    @property
    def _punctual(self) -> int:
        """How many workers set up and do not take longer for it than can be expected."""
        patience = max(KEPT_S, KEPT_TIMES * self._slowest_setup)
        latest = time.monotonic() - patience
        seats = self._seats.values()
        return sum(seat.state is State.STARTING and seat.since > latest for seat in seats)

    def _look(self, patience: float | None) -> Iterator[Event]:
        """Sleep until something happens or is due, then see to it."""
        dead = []
        away = time.monotonic() - self._woke
        ready = self._poll.poll(patience)
        self._woke = time.monotonic()
        self._look_after_progress([descriptor for descriptor, _ in ready], away)
        for descriptor, _ in ready:
            seat = self._watched.get(descriptor)
            if seat is None:
                self._clear_wake()
            elif descriptor == seat.child.sentinel:
                dead.append(seat)
            elif descriptor == seat.feed.descriptor:
                self._go_on_feeding(seat)
            else:
                yield from self._listen(seat, descriptor)
        for seat in dead:
            yield from self._bury(seat)
        yield from self._look_after_times()
        if self._broken_off and not self._stopping:
            raise RuntimeError("the run was broken off by terminate().")

    def _listen(self, seat: WorkerHandle, descriptor: int) -> Iterator[Event]:
        yield from self._read(seat, seat.child.messages())
        if seat.child.pipe is None:
            del self._watched[descriptor]  # closed, and so gone from the poll as well

    def _read(self, seat: WorkerHandle, messages: Iterator[Message]) -> Iterator[Event]:
        try:
            for message in messages:
                yield from self._understand(seat, message)
        except Exception as error:  # noqa: BLE001 - bytes of two writers may be read as anything
            self._mistrust(seat, f"its messages cannot be read: {type(error).__name__}: {error}")

    def _mistrust(self, seat: WorkerHandle, why: str) -> None:
        """End a worker that cannot be understood any more."""
        seat.confused = True
        seat.words_of_end = why
        seat.child.kill()

    def _understand(self, seat: WorkerHandle, message: Message) -> Iterator[Event]:
        match message:
            case Report(payload):
                tag, rest = payload[:1], memoryview(payload)[1:]
                if tag == Tag.ANSWERS:
                    yield from self._answers(seat, rest)
                else:
                    yield from self._word(seat, tag, str(rest, "utf-8"))
            case Failure(_, _, traceback):
                seat.words_of_end = traceback
            case Finished():
                seat.finished = True

    def _answers(self, seat: WorkerHandle, rest: memoryview) -> Iterator[Event]:
        count, seconds, _ = unpack_answers(rest)
        if seat.confused or count > seat.outstanding:
            self._mistrust(seat, "It answered more tasks than it had: was it copied by a fork?")
            return
        if count:
            self._durations[seat.worker_id] = seconds / count
        if self._rules.tell_starts:
            yield from self._starts(seat, seat.answered + count)
        for event in seat.take(rest, self._rules.task_timeout):
            if self._attempts:
                self._forget(event)
            yield event

    def _word(self, seat: WorkerHandle, tag: bytes, text: str) -> Iterator[Event]:
        if tag == Tag.READY:
            # There may be no work left by now: it then ends at once, and that is no death.
            seat.state = State.ENDING if seat.feed.finishing else State.READY
            before, seat.since = seat.since, time.monotonic()
            self._slowest_setup = max(self._slowest_setup, seat.since - before)
            yield WorkerReady(seat.worker_id)
            tasks = self._stream.release()
            if tasks[1]:
                yield from self._give(seat, tasks)
        elif tag == Tag.SETUP_FAILED:
            seat.state = State.FAILED
            seat.since = time.monotonic()
            yield self._setup_failed(seat.place, text)
        elif tag == Tag.CLEANUP_FAILED:
            yield _cleanup_failed(seat, text)

    def _give(self, seat: WorkerHandle, tasks: Tasks) -> Iterator[Event]:
        refused = seat.give(tasks)
        self._watch_feed(seat)
        yield from refused

    def _setup_failed(self, place: WorkerSlot, text: str) -> SetupFailed:
        self._stream.put_back(zip(*self._stream.release(), strict=True))
        gpu_id = place.assignment.gpu_id
        self._failures.append(f"worker {place.worker_id} (gpu_id {gpu_id}):\n{text}")
        return SetupFailed(gpu_id, text, place.worker_id)

    def _starts(self, seat: WorkerHandle, until: int) -> Iterator[Event]:
        """Tell of the starts of tasks up to the number `until`."""
        if until > seat.reported:
            ids = seat.ids_between(seat.reported, until)
            seat.reported = until
            for task_id in ids:
                yield TaskStarted(task_id, seat.worker_id)

    def _forget(self, event: Event) -> None:
        for task_id in getattr(event, "task_ids", ()) or [getattr(event, "task_id", -1)]:
            self._attempts.pop(task_id, None)

    # --- times

    def _patience(self) -> float | None:
        """How long to sleep at most: not long while something may be due."""
        rules, states = self._rules, {seat.state for seat in self._seats.values()}
        due = (
            rules.tell_starts
            or rules.task_timeout is not None
            or (rules.setup_timeout is not None and State.STARTING in states)
            or (rules.cleanup_timeout is not None and states & {State.ENDING, State.FAILED})
            or (self._over_since is not None and State.STARTING in states)
            or self._idle_beside_kept
        )
        return _TICK_S if due else self._standstills.tick

    def _look_after_times(self) -> Iterator[Event]:
        now = time.monotonic()
        for seat in list(self._seats.values()):
            serial, began = seat.running, seat.started_at
            if serial is not None and self._rules.tell_starts:
                yield from self._starts(seat, serial)
            if seat.ended_for is not None:
                if now - seat.killed_at > ABANDON_S:
                    yield from self._bury(seat)
            elif why := self._lateness(seat, serial, began, now):
                self._end_worker(seat, Ending(serial or 0, why, timed_out=True), now)

    def _look_after_progress(self, ready: Sequence[int], away: float) -> None:
        """End the workers that get no further, before anything is done for the others.

        Parameters
        ----------
        ready
            Descriptors that the poll has just named. Whose pipe is among them has sent bytes, or
            taken some of its task: it gets on, or waits for the parent.
        away
            Seconds from the last poll to this one.
        """
        if self._rules.progress_timeout is None:
            return
        moved = {seat.worker_id for one in ready if (seat := self._watched.get(one)) is not None}
        pulses = {
            worker_id: pulse
            for worker_id, seat in self._seats.items()
            if worker_id not in moved and (pulse := seat.pulse) is not None
        }
        for worker_id, measure, why in self._standstills.steps(pulses, self._woke, away):
            seat = self._seats[worker_id]
            if measure is not Measure.ASK_FOR_STACKS:
                self._end_worker(seat, Ending(seat.begun or 0, why, timed_out=False), self._woke)
            elif seat.place.log is not None:
                seat.child.signal(STACKS_SIGNAL)

    def _end_worker(self, seat: WorkerHandle, ending: Ending, now: float) -> None:
        seat.ended_for, seat.killed_at = ending, now
        seat.child.kill()

    def _lateness(self, seat: WorkerHandle, serial: int | None, began: float, now: float) -> str:
        """Say what a worker takes too long for, if it does."""
        rules, since = self._rules, now - seat.since
        if seat.state is State.STARTING:
            limit, what = rules.setup_timeout, "did not set up"
            over, patience = self._over_since, rules.cleanup_timeout
            if over is not None and patience is not None and now - over > patience:
                return f"all tasks were answered, and {patience:g} s later it still set up"
        elif serial is not None:
            limit, since, what = rules.task_timeout, now - began, "did not end its task"
            # Race: another task may have begun since the time was read; the number tells.
            if limit is None or seat.running != serial:
                return ""
            limit += HARD_GRACE_S
        elif seat.state in {State.ENDING, State.FAILED}:
            limit, what = rules.cleanup_timeout, "did not end"
        else:
            return ""
        return f"it {what} within {limit:g} s" if limit is not None and since > limit else ""

    # --- deaths

    def _bury(self, seat: WorkerHandle) -> Iterator[Event]:
        self._unwatch(seat)
        yield from self._read(seat, seat.child.last_messages())
        code = exit_name(seat.child.exit_code())
        begun, certain = seat.begun, seat.running is not None
        unanswered = seat.unanswered()
        del self._seats[seat.worker_id]
        seat.close()
        if self._stopping:
            return
        text = _how(seat, code)
        if seat.state is State.STARTING:
            yield self._setup_failed(seat.place, f"{text} It was setting up.")
        elif seat.state is State.ENDING and not unanswered:
            if not (seat.finished and code in {0, None}):
                yield _cleanup_failed(seat, f"{text} It was cleaning up.")
        elif seat.state is not State.FAILED:
            yield from self._blame(seat, (code, text), (begun, certain), unanswered)

    def _blame(
        self,
        seat: WorkerHandle,
        end: tuple[int | str | None, str],
        last: tuple[int | None, bool],
        unanswered: list[tuple[int, object]],
    ) -> Iterator[Event]:
        """Find the task that a worker died of, and have the others done elsewhere.

        Parameters
        ----------
        end
            How the worker ended: its exit code, and the same in words.
        last
            The number of the last task that it had begun, and whether it was still at it.
        """
        (code, text), (serial, certain) = end, last
        begun = 0 if serial is None else serial - seat.answered
        if begun > 1 and not certain:
            # It died between tasks, of any of those whose results had not been sent: each is done
            # alone now, and tells.
            self._stream.suspect(unanswered[:begun])
            unanswered, serial = unanswered[begun:], None
        charged = None if serial is None else unanswered.pop(begun - 1)
        yield WorkerDied(seat.worker_id, code, None if charged is None else charged[0], text)
        if charged is not None:
            yield from self._charge(seat, serial, charged, text)
        self._stream.put_back(unanswered)
        yield from self._replace(seat, text, barren=not begun and not seat.answered)

    def _charge(
        self, seat: WorkerHandle, serial: int | None, task: tuple[int, object], text: str
    ) -> Iterator[Event]:
        """Answer for the task in which a worker died, or have it done again."""
        task_id = task[0]
        yield from self._starts_of(seat, serial)
        ending = seat.ended_for
        if ending is not None and ending.serial != serial:
            # The late task was answered at the last moment: this one is innocent.
            self._stream.put_back([task])
            return
        if ending is not None and ending.timed_out:
            yield TaskTimeout(task_id, self._rules.task_timeout or 0.0, seat.worker_id)
            return
        attempt = self._attempts.get(task_id, 0) + 1
        if attempt < self._rules.max_attempts:
            self._attempts[task_id] = attempt
            self._stream.suspect([task])
            yield TaskRetried(task_id, attempt, text, seat.worker_id)
        else:
            self._attempts.pop(task_id, None)
            yield TaskError(
                task_id, f"{text} It was running this task, attempt {attempt}.", seat.worker_id
            )

    def _starts_of(self, seat: WorkerHandle, serial: int | None) -> Iterator[Event]:
        if self._rules.tell_starts and serial is not None:
            yield from self._starts(seat, serial)

    def _replace(self, seat: WorkerHandle, how: str, *, barren: bool) -> Iterator[Event]:
        """Start a worker in place of a dead one, where there is work for it."""
        worker_id = seat.worker_id
        self._barren[worker_id] = self._barren.get(worker_id, 0) + 1 if barren else 0
        if self._barren[worker_id] >= BARREN:
            yield self._setup_failed(
                seat.place,
                f"set up {BARREN} times, and died each time before it began on a task; the last "
                f"time: {how}",
            )
        elif not self._stream.over:
            try:
                self._open(seat.place)
            except OSError as error:
                yield self._setup_failed(seat.place, f"it could not be started again: {error}")

    # --- the end

    def _end(self) -> Iterator[Event]:
        """Tell the workers that there is no more work, and see them end."""
        self._over_since = time.monotonic()
        for seat in self._seats.values():
            seat.feed.finish()
            if seat.state is State.READY:
                seat.state = State.ENDING
                seat.since = time.monotonic()
        while self._seats:
            yield from self._look(self._patience())

    def _give_up(self) -> Iterator[Event]:
        """Answer what no worker is left for."""
        self._gave_up = True
        self._stream.end()
        ids, _ = self._stream.take_all()
        for task_id in ids:
            yield TaskError(task_id, f"no worker is left.\n{self._all_failures()}", -1)

    def _raise_what_is_left(self) -> None:
        if self._gave_up:
            what = "No worker is left" if self._slowest_setup else "All workers failed during setup"
            raise RuntimeError(f"{what}:\n{self._all_failures()}") from self._stream.error
        if self._stream.error is not None:
            self._stream.error.add_note(
                f"Raised by the generator of tasks; the {self._stream.taken} tasks that it had "
                "given before were all answered."
            )
            raise self._stream.error

    def _all_failures(self) -> str:
        return "\n".join(self._failures)

    def _stop(self) -> None:
        """Break off what still goes on: ask the workers to end, then kill them."""
        self._stopping = True
        for seat in self._seats.values():
            self._leave_feed(seat)
            seat.feed.close()
            seat.child.terminate()
        deadline = time.monotonic() + STOP_GRACE_S
        while self._seats and (left := deadline - time.monotonic()) > 0:
            for _ in self._look(left):
                pass  # nobody listens any more

    def _close(self) -> None:
        for seat in list(self._seats.values()):
            self._unwatch(seat)
            seat.child.kill()
            seat.child.process.join(ABANDON_S)
            seat.close()
        self._seats.clear()
        atexit.unregister(self._kill_at_exit)
        with self._lock:
            os.close(self._wake)
            self._wake = -1
        self._poll.close()

    def _kill_at_exit(self) -> None:
        # A process that was forked from the owner inherits its exit hooks, but not its children.
        if os.getpid() == self._owner:
            self._stopping = True
            for seat in self._seats.copy().values():
                seat.child.kill()

    # --- descriptors

    def _open(self, place: WorkerSlot) -> None:
        most = 0 if self._rules.one_at_a_time else self._most
        seat = WorkerHandle(place, len(self._places), most)
        self._seats[place.worker_id] = seat
        for descriptor in (seat.child.sentinel, seat.child.pipe):
            number = descriptor if isinstance(descriptor, int) else descriptor.fileno()  # type: ignore[union-attr]
            self._watched[number] = seat
            self._poll.register(number, select.EPOLLIN)

    def _unwatch(self, seat: WorkerHandle) -> None:
        for descriptor in [number for number, one in self._watched.items() if one is seat]:
            del self._watched[descriptor]
            self._poll.unregister(descriptor)

    def _watch_feed(self, seat: WorkerHandle) -> None:
        descriptor = seat.feed.descriptor
        if seat.feed.waiting and descriptor not in self._watched:
            self._watched[descriptor] = seat
            self._poll.register(descriptor, select.EPOLLOUT)

    def _go_on_feeding(self, seat: WorkerHandle) -> None:
        seat.feed.flush()
        if not seat.feed.waiting:
            self._leave_feed(seat)
            if seat.feed.finishing:
                seat.feed.close()

    def _leave_feed(self, seat: WorkerHandle) -> None:
        if self._watched.pop(seat.feed.descriptor, None) is not None:
            self._poll.unregister(seat.feed.descriptor)

    def _wake_up(self) -> None:
        if self._wake >= 0:
            os.eventfd_write(self._wake, 1)

    def _clear_wake(self) -> None:
        try:
            os.eventfd_read(self._wake)
        except BlockingIOError:
            return


def _cleanup_failed(seat: WorkerHandle, text: str) -> CleanupFailed:
    return CleanupFailed(seat.place.assignment.gpu_id, text, seat.worker_id)


def _how(seat: WorkerHandle, code: int | str | None) -> str:
    """Say how a worker ended."""
    if seat.ended_for is not None:
        how = f"was ended: {seat.ended_for.why}"
    elif isinstance(code, str):
        how = f"was killed by {code}"
    else:
        how = "ended, nobody knows how" if code is None else f"exited with code {code}"
    log = seat.place.log
    where = "" if log is None or str(log) == os.devnull else f" (its output: {log})"
    return f"worker {seat.worker_id} {how}{where}.\n{seat.words_of_end}".rstrip()

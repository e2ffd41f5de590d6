"""One run of a dispatcher: sends tasks, receives answers, replaces dead workers.

Everything runs in the thread that iterates over `DispatchLoop.events`, so no lock is needed. A slow
consumer of the events delays the generator of tasks (backpressure).
"""

import time
from collections.abc import Generator, Iterator, Sequence
from itertools import chain
from typing import cast

from virnucpro.dispatch.codec import unpack_answers
from virnucpro.dispatch.protocol import (
    CleanupFailed,
    Event,
    SetupFailed,
    TaskError,
    TaskRetried,
    TaskTimeout,
    WorkerDied,
    WorkerReady,
)
from virnucpro.dispatch.stream import Stream, Tasks
from virnucpro.dispatch.worker_handle import (
    LATE_TASK,
    Ending,
    Rules,
    State,
    WorkerHandle,
)
from virnucpro.dispatch.worker_main import Assignment, Tag
from virnucpro.errors import UsageError
from virnucpro.runtime.child import Setup
from virnucpro.runtime.messages import Failure, Finished, Report
from virnucpro.runtime.status import Death, exit_name
from virnucpro.runtime.supervisor import Event as ChildEvent
from virnucpro.runtime.supervisor import Late, StopMethod, Supervisor
from virnucpro.runtime.watchdog import Watched

RESERVED_S = 1.0
"""Minimum seconds for which a task is kept for a worker, until its setup is finished."""

RESERVED_TIMES = 2.0
"""It is kept for this many times the duration of the slowest finished setup."""


BARREN = 3
"""Maximum consecutive deaths of a worker before or between tasks; then it is not restarted."""

_TICK_S = 0.05
"""Maximum sleep in seconds while task starts are reported, or tasks are kept for a while."""


class DispatchLoop:
    """Executes one run of a dispatcher: starts the workers, runs all tasks, yields events.

    Parameters
    ----------
    slots
        For each worker, the parameters of its process and its own parameters.
    stream
        The tasks. The caller of `events` must increase ``stream.delivered`` for each answer.
    rules
        Time limits and options.
    most
        Maximum number of tasks in a batch.

    Attributes
    ----------
    durations
        Mean seconds per task in the last message of results of each worker, by worker id.
    """

    def __init__(
        self,
        slots: Sequence[tuple[Setup, Assignment]],
        stream: Stream,
        rules: Rules,
        most: int,
    ) -> None:
        self._slots = slots
        self._stream = stream
        self._rules = rules
        self._most = 0 if rules.one_at_a_time else most
        limits = rules.setup_timeout, rules.cleanup_timeout, rules.progress_timeout
        self._children = Supervisor(self._watched, (*limits, rules.task_limit), StopMethod.KILL)
        self._workers: dict[int, WorkerHandle] = {}
        self._barren: dict[int, int] = {}
        self.durations: dict[int, float] = {}
        self._attempts: dict[int, int] = {}
        self._slowest_setup = 0.0
        self._all_answered = False
        self._failures: list[str] = []
        self._draining = False
        self._terminated = False
        self._gave_up = False

    def current_tasks(self) -> dict[int, tuple[int | None, float | None]]:
        """Return id and start of each worker's current task by worker id. Any thread may call this.

        See `WorkerHandle.current_task`.
        """
        return {key: worker.current_task() for key, worker in self._workers.copy().items()}

    def drain(self) -> None:
        """Read no more tasks; answer the tasks in memory, then end. Any thread may call this."""
        self._draining = True
        self._children.wake()

    def terminate(self) -> None:
        """Stop the run: `events` raises a RuntimeError. Any thread may call this."""
        self._terminated = True
        self._children.wake()

    def events(self) -> Generator[Event, None, None]:
        """Run all tasks and yield the events. Close this generator to stop the run.

        Raises
        ------
        RuntimeError
            If all workers failed permanently, or `terminate` stopped the run.
        UsageError
            If this process is a fork of the one that began the run.
        Exception
            The error of the generator of tasks, raised when its earlier tasks are answered.
        """
        try:
            for setup, assignment in self._slots:
                self._start_worker(setup, assignment)
            for event in chain(self._run_tasks(), self._end()):
                yield event
                self._refuse_fork()
            self._raise_what_is_left()
        finally:
            if not self._children.forked:
                self._close()

    # --- the run

    def _refuse_fork(self) -> None:
        """Raise an error in a fork: its messages and tasks would be lost for the parent."""
        if self._children.forked:
            raise UsageError("the run belongs to the process before the fork: start a new run.")

    def _run_tasks(self) -> Iterator[Event]:
        while not self._stream.over:
            if self._draining:
                self._stream.exhausted = True
            if not self._workers:
                yield from self._give_up()
                return
            for worker, tasks in self._deal():
                yield from worker.give(tasks)
            if not self._stream.over:
                yield from self._wait_for_events(0.0 if self._has_takers else self._patience())

    def _patience(self) -> float | None:
        return _TICK_S if self._rules.report_starts or self._new_workers else None

    def _wait_for_events(self, patience: float | None) -> Iterator[Event]:
        """Wait at most `patience` seconds for messages of the workers; yield the resulting events.

        If `patience` is None, the wait has no time limit.
        """
        if self._terminated:
            raise RuntimeError("the run was stopped by terminate().")
        for worker_id, event in self._children.step(patience):
            yield from self._handle(self._workers[worker_id], event)
        if self._rules.report_starts:
            for worker in self._workers.values():
                yield from worker.start_events(worker.running)

    def _watched(self) -> Iterator[Watched]:
        for worker in self._workers.values():
            yield from worker.deadlines(self._rules, all_answered=self._all_answered)

    def _handle(self, worker: WorkerHandle, event: ChildEvent) -> Iterator[Event]:
        match event:
            case Report(payload):
                try:
                    yield from self._report(worker, payload)
                except Exception as error:  # noqa: BLE001 - bytes of two writers may be anything
                    self._distrust(worker, f"invalid message: {type(error).__name__}: {error}")
            case Failure(kind, text, traceback):
                worker.last_error = traceback or f"{kind}: {text}"
            case Finished():
                worker.finished = True
            case Late(watched):
                late_task = watched.fault == LATE_TASK
                serial = cast("int", watched.sign) if late_task else worker.begun or 0
                worker.ending = Ending(serial, watched.why, timed_out=late_task)
            case Death():
                yield from self._handle_death(worker, event)

    def _distrust(self, worker: WorkerHandle, why: str) -> None:
        worker.last_error = why
        self._children.distrust(worker.worker_id)

    def _report(self, worker: WorkerHandle, payload: bytes) -> Iterator[Event]:
        tag, rest = payload[:1], memoryview(payload)[1:]
        if tag == Tag.ANSWERS:
            yield from self._answers(worker, rest)
        elif tag == Tag.READY:
            yield from self._ready(worker)
        elif tag == Tag.SETUP_FAILED:
            worker.enter(State.FAILED)
            yield self._setup_failed(worker, str(rest, "utf-8"))
        elif tag == Tag.CLEANUP_FAILED:
            yield CleanupFailed(worker.gpu_id, str(rest, "utf-8"), worker.worker_id)

    def _answers(self, worker: WorkerHandle, rest: memoryview) -> Iterator[Event]:
        count, seconds, frame = unpack_answers(rest)
        if count > worker.outstanding:
            text = (
                "The worker sent more answers than it had tasks. A forked copy may have sent them."
            )
            self._distrust(worker, text)
            return
        if self._rules.report_starts:
            yield from worker.start_events(worker.answered + count)
        if count:
            self.durations[worker.worker_id] = seconds / count
            yield from worker.take(frame, count, seconds, self._rules.task_timeout)

    def _ready(self, worker: WorkerHandle) -> Iterator[Event]:
        self._slowest_setup = max(self._slowest_setup, time.monotonic() - worker.since)
        # If no work is left, the worker ends immediately; this is not a failure.
        worker.enter(State.ENDING if self._all_answered else State.READY)
        yield WorkerReady(worker.worker_id)

    # --- which worker gets which tasks

    @property
    def _has_takers(self) -> bool:
        """Whether a task waits and a worker can accept this task now."""
        if self._stream.suspects:
            return any(worker.idle for worker in self._workers.values())
        new = self._new_workers
        return any(
            worker.wanted and self._stream.has_more(self._n_kept(worker, new))
            for worker in self._workers.values()
        )

    @property
    def _new_workers(self) -> list[WorkerHandle]:
        """Workers without a first task; a task is kept for each of them."""
        if not self._rules.fair:
            return []
        return [
            worker
            for worker in self._workers.values()
            if worker.new and worker.state in {State.STARTING, State.READY}
        ]

    def _deal(self) -> Iterator[tuple[WorkerHandle, Tasks]]:
        """Yield each worker that can accept tasks, together with the tasks for this worker.

        The caller must send the tasks before it requests the next worker.
        """
        new = self._new_workers
        for worker in list(self._workers.values()):
            if self._stream.suspects:  # retries first: busy workers get no new tasks
                if worker.idle:
                    yield worker, self._stream.take_suspect()
                    worker.alone = not worker.idle
                continue
            if wanted := worker.wanted:
                tasks = self._stream.take(wanted, self._n_kept(worker, new))
                self._refuse_fork()  # the generator of tasks may have forked
                if tasks[1]:
                    yield worker, tasks

    def _n_kept(self, worker: WorkerHandle, new: Sequence[WorkerHandle]) -> int:
        """Return the number of tasks that a worker must leave to the `new` workers.

        If no other tasks are left, an idle worker takes those of workers with a slow setup.
        """
        if worker.new or not worker.idle or self._stream.has_more(len(new)):
            return 0 if worker.new else len(new)
        latest = time.monotonic() - max(RESERVED_S, RESERVED_TIMES * self._slowest_setup)
        return sum(one.since > latest for one in new)

    # --- deaths

    def _handle_death(self, worker: WorkerHandle, death: Death) -> Iterator[Event]:
        worker_id, code, text = worker.worker_id, exit_name(death.code), worker.how_it_ended(death)
        del self._workers[worker_id]
        try:
            if worker.lacks_main_guard(death):
                yield self._setup_failed(worker, text)
            elif worker.state is State.STARTING and worker.ending is not None:
                yield self._setup_failed(worker, f"{text} The worker was in its setup.")
            elif worker.state is State.STARTING:
                yield WorkerDied(worker_id, code, None, f"{text} The worker was in its setup.")
                yield from self._replace(worker, text, barren=True)
            elif worker.state is State.ENDING and not worker.outstanding:
                if not (worker.finished and code in {0, None}):
                    text = f"{text} The worker was in its cleanup."
                    yield CleanupFailed(worker.gpu_id, text, worker_id)
            elif worker.state is not State.FAILED:
                barren = worker.begun is None and not worker.answered
                yield from self._reassign(worker, code, text)
                yield from self._replace(worker, text, barren=barren)
        finally:
            worker.close()

    def _replace(self, worker: WorkerHandle, how: str, *, barren: bool) -> Iterator[Event]:
        """Restart a dead worker if unanswered tasks are left.

        Yield `SetupFailed` if the restart fails. Yield it also, without a restart, if the worker
        died `BARREN` times in a row before it started a task (`barren`).
        """
        worker_id = worker.worker_id
        self._barren[worker_id] = self._barren.get(worker_id, 0) + 1 if barren else 0
        if self._barren[worker_id] >= BARREN:
            yield self._setup_failed(
                worker,
                f"died {BARREN} times in a row before its first task; last failure: {how}",
            )
        elif not self._stream.over:
            try:
                self._start_worker(worker.setup, worker.assignment, new=worker.new)
            except OSError as error:
                yield self._setup_failed(worker, f"the restart failed: {error}")

    def _setup_failed(self, worker: WorkerHandle, text: str) -> SetupFailed:
        self._failures.append(f"worker {worker.worker_id} (gpu_id {worker.gpu_id}):\n{text}")
        return SetupFailed(worker.gpu_id, text, worker.worker_id)

    def _reassign(self, worker: WorkerHandle, code: int | str | None, text: str) -> Iterator[Event]:
        """Put the tasks of a dead worker back into the stream; yield the events of the death.

        The first event is `WorkerDied`. If a task was running, its retry or final answer follows.

        Parameters
        ----------
        worker
            The dead worker; call its `close` afterwards.
        code, text
            Exit code or name of the signal (None if unknown), and a text: how the worker ended.
        """
        unanswered, serial = worker.unanswered(), worker.begun
        begun = 0 if serial is None else serial - worker.answered
        if begun > 1 and worker.running is None:
            # A finished task without a sent result may be the cause: each is retried alone.
            self._stream.suspects.extend(unanswered[:begun])
            unanswered, serial = unanswered[begun:], None
        begun_task = None if serial is None else unanswered.pop(begun - 1)
        task_id = None if begun_task is None else begun_task[0]
        yield WorkerDied(worker.worker_id, code, task_id, text)
        if begun_task is not None and serial is not None:
            if self._rules.report_starts:
                yield from worker.start_events(serial)
            yield from self._retry_or_fail(worker, serial, begun_task, text)
        self._stream.put_back(unanswered)

    def _retry_or_fail(
        self, worker: WorkerHandle, serial: int, task: tuple[int, object], text: str
    ) -> Iterator[Event]:
        """Retry or answer the task that a worker was running when it died; yield the event.

        If the task did not cause the death, the task is reassigned and no event is yielded.
        """
        task_id, ending = task[0], worker.ending
        if ending is not None and ending.serial != serial:
            # The late task was answered just before the kill: this task is not the cause.
            self._stream.put_back([task])
            return
        if ending is not None and ending.timed_out:
            limit = self._rules.task_timeout or 0.0
            yield TaskTimeout(task_id, limit, worker.worker_id, seconds=worker.seconds_in_task)
            return
        attempt = self._attempts.get(task_id, 0) + 1
        if attempt < self._rules.max_attempts:
            self._attempts[task_id] = attempt
            self._stream.suspects.extend([task])
            yield TaskRetried(task_id, attempt, text, worker.worker_id)
        else:
            text = f"{text} The worker was running this task (attempt {attempt})."
            seconds = worker.seconds_in_task
            yield TaskError(task_id, text, worker.worker_id, status="died", seconds=seconds)

    # --- start and end

    def _start_worker(self, setup: Setup, assignment: Assignment, *, new: bool = True) -> None:
        worker = WorkerHandle(setup, assignment, self._most, new=new)
        try:
            worker.start(self._children)
        except BaseException:
            worker.close()
            raise
        self._workers[worker.worker_id] = worker

    def _end(self) -> Iterator[Event]:
        """Tell the workers that no more tasks follow; yield events until all workers have ended."""
        self._all_answered = True
        for worker in self._workers.values():
            worker.finish()
            if worker.state is State.READY:
                worker.enter(State.ENDING)
        while self._workers:
            yield from self._wait_for_events(self._patience())

    def _give_up(self) -> Iterator[Event]:
        """Yield a `TaskError` for each remaining task in memory; all workers have failed."""
        self._gave_up = True
        self._stream.exhausted = True
        ids, _ = self._stream.take_all()
        for task_id in ids:
            text = f"all workers failed.\n{self._all_failures()}"
            yield TaskError(task_id, text, None, status="died")

    def _raise_what_is_left(self) -> None:
        if self._gave_up:
            what = (
                "All workers failed" if self._slowest_setup else "All workers failed during setup"
            )
            raise RuntimeError(f"{what}:\n{self._all_failures()}") from self._stream.error
        if self._stream.error is not None:
            self._stream.error.add_note(
                f"The generator of tasks raised this error; its first {self._stream.taken} tasks "
                "were answered."
            )
            raise self._stream.error

    def _all_failures(self) -> str:
        return "\n".join(self._failures)

    def _close(self) -> None:
        try:
            self._stop()
        finally:
            self._children.close()
            for worker in self._workers.values():
                worker.close()
            self._workers.clear()

    def _stop(self) -> None:
        """End the remaining workers with SIGTERM, then SIGKILL."""
        for worker_id in self._children.ranks:
            self._children.send(worker_id, b"")  # for a worker that waits for tasks
            self._children.end(worker_id)
        while self._children.ranks:
            for _ in self._children.step():
                pass  # the reader of the events has ended

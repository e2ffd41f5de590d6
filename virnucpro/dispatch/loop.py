"""One run of a dispatcher: sends tasks, receives answers, replaces dead workers.

Everything runs in the thread that iterates over `DispatchLoop.events`, so no lock is needed. A slow
consumer of the events delays the generator of tasks (backpressure).
"""

from collections.abc import Generator, Iterator, Sequence
from itertools import chain

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
from virnucpro.dispatch.stream import NumberedTask, Stream
from virnucpro.dispatch.worker_handle import LATE_TASK, Rules, State, WorkerHandle
from virnucpro.dispatch.worker_main import Assignment, Tag
from virnucpro.errors import UsageError
from virnucpro.runtime.child import Setup
from virnucpro.runtime.messages import Failure, Finished, Report
from virnucpro.runtime.status import Death, exit_name
from virnucpro.runtime.supervisor import Event as ChildEvent
from virnucpro.runtime.supervisor import Late, StopMethod, Supervisor
from virnucpro.runtime.watchdog import Watched

BARREN = 3
"""Maximum consecutive deaths of a worker before or between tasks; then it is not restarted."""


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
    """

    def __init__(
        self, slots: Sequence[tuple[Setup, Assignment]], stream: Stream, rules: Rules
    ) -> None:
        self._slots = slots
        self._stream = stream
        self._rules = rules
        limits = rules.setup_timeout, rules.cleanup_timeout, rules.progress_timeout
        self._children = Supervisor(self._watched, (*limits, rules.task_limit), StopMethod.KILL)
        self._workers: dict[int, WorkerHandle] = {}
        self._barren: dict[int, int] = {}
        self._attempts: dict[int, int] = {}
        self._was_ready = False
        self._all_answered = False
        self._failures: list[str] = []
        self._draining = False
        self._terminated = False
        self._gave_up = False

    def current_tasks(self) -> dict[int, tuple[int, float]]:
        """Return id and start of the task of each busy worker. Any thread may call this.

        The start is in seconds of `time.monotonic`.
        """
        return {
            worker_id: (task[0], worker.sent_at)
            for worker_id, worker in self._workers.copy().items()
            if (task := worker.task) is not None
        }

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
            idle = self._idle_worker
            task = self._stream.take() if idle else None
            self._refuse_fork()  # the generator of tasks may have forked
            if idle and task:
                yield idle.give(task)
            if not self._stream.over:
                # Also before a task for the next idle worker: a slow generator delays no answer.
                yield from self._wait_for_events(0.0 if task and self._idle_worker else None)

    @property
    def _idle_worker(self) -> WorkerHandle | None:
        return next((worker for worker in self._workers.values() if worker.idle), None)

    def _wait_for_events(self, patience: float | None = None) -> Iterator[Event]:
        """Wait at most `patience` seconds for messages of the workers; yield the resulting events.

        If `patience` is None, the wait has no time limit.
        """
        if self._terminated:
            raise RuntimeError("the run was stopped by terminate().")
        for worker_id, event in self._children.step(patience):
            yield from self._handle(self._workers[worker_id], event)

    def _watched(self) -> Iterator[Watched]:
        for worker in self._workers.values():
            yield from worker.deadlines(self._rules, all_answered=self._all_answered)

    def _handle(self, worker: WorkerHandle, event: ChildEvent) -> Iterator[Event]:
        match event:
            case Report(payload):
                try:
                    yield self._report(worker, payload)
                except Exception as error:  # noqa: BLE001 - bytes of two writers may be anything
                    worker.last_error = f"invalid message: {type(error).__name__}: {error}"
                    self._children.distrust(worker.worker_id)
            case Failure(kind, text, traceback):
                worker.last_error = traceback or f"{kind}: {text}"
            case Finished():
                worker.finished = True
            case Late(watched):
                worker.ending = watched
            case Death():
                yield from self._handle_death(worker, event)

    def _report(self, worker: WorkerHandle, payload: bytes) -> Event:
        tag, content = payload[:1], memoryview(payload)[1:]
        if tag == Tag.READY:
            self._was_ready = True
            # If no work is left, the worker ends immediately; this is not a failure.
            worker.state = State.ENDING if self._all_answered else State.READY
            return WorkerReady(worker.worker_id)
        if tag == Tag.SETUP_FAILED:
            worker.state = State.FAILED
            return self._setup_failed(worker, str(content, "utf-8"))
        if tag == Tag.CLEANUP_FAILED:
            return CleanupFailed(worker.gpu_id, str(content, "utf-8"), worker.worker_id)
        return worker.take(tag, content, self._rules.task_timeout)

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
            elif worker.state is State.ENDING:
                if not (worker.finished and code in {0, None}):
                    text = f"{text} The worker was in its cleanup."
                    yield CleanupFailed(worker.gpu_id, text, worker_id)
            elif worker.state is not State.FAILED:
                barren = not worker.has_begun and not worker.answered
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
                self._start_worker(worker.setup, worker.assignment)
            except OSError as error:
                yield self._setup_failed(worker, f"the restart failed: {error}")

    def _setup_failed(self, worker: WorkerHandle, text: str) -> SetupFailed:
        self._failures.append(f"worker {worker.worker_id} (gpu_id {worker.gpu_id}):\n{text}")
        return SetupFailed(worker.gpu_id, text, worker.worker_id)

    def _reassign(self, worker: WorkerHandle, code: int | str | None, text: str) -> Iterator[Event]:
        """Yield the death of a worker, and the retry or the final answer of its task.

        If the worker had not started the task, the task is reassigned without a further event.

        Parameters
        ----------
        code, text
            Exit code or name of the signal (None if unknown), and a text: how the worker ended.
        """
        task = worker.task
        if task is None or not worker.has_begun:
            yield WorkerDied(worker.worker_id, code, None, text)
            if task is not None:
                self._stream.put_back(task)
        else:
            yield WorkerDied(worker.worker_id, code, task[0], text)
            yield self._retry_or_fail(worker, task, text)

    def _retry_or_fail(self, worker: WorkerHandle, task: NumberedTask, text: str) -> Event:
        """Retry or answer the task that a worker was running when it died; return the event."""
        task_id, seconds = task[0], worker.seconds_in_task
        if worker.ending is not None and worker.ending.fault == LATE_TASK:
            limit = self._rules.task_timeout or 0.0
            return TaskTimeout(task_id, limit, worker.worker_id, seconds=seconds)
        attempt = self._attempts.get(task_id, 0) + 1
        if attempt < self._rules.max_attempts:
            self._attempts[task_id] = attempt
            self._stream.put_back(task)
            return TaskRetried(task_id, attempt, text, worker.worker_id)
        text = f"{text} The worker was running this task (attempt {attempt})."
        return TaskError(task_id, text, worker.worker_id, status="died", seconds=seconds)

    # --- start and end

    def _start_worker(self, setup: Setup, assignment: Assignment) -> None:
        worker = WorkerHandle(setup, assignment)
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
                worker.state = State.ENDING
        while self._workers:
            yield from self._wait_for_events()

    def _give_up(self) -> Iterator[Event]:
        """Yield a `TaskError` for each remaining task in memory; all workers have failed."""
        self._gave_up = True
        self._stream.exhausted = True
        text = f"all workers failed.\n{self._all_failures()}"
        while task := self._stream.take():
            yield TaskError(task[0], text, None, status="died")

    def _raise_what_is_left(self) -> None:
        if self._gave_up:
            what = "All workers failed" if self._was_ready else "All workers failed during setup"
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

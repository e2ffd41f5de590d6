"""Dispatcher: runs a stream of tasks on worker processes that stay alive between tasks."""

import logging
import os
import sys
import threading
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Generic, Self, SupportsIndex, cast

from virnucpro.dispatch.loop import DispatchLoop
from virnucpro.dispatch.protocol import (
    Answer,
    CleanupFailed,
    DispatchStats,
    Event,
    Outcome,
    SetupFailed,
    TaskError,
    TaskRetried,
    TaskStarted,
    TaskSuccess,
    TaskTimeout,
    WorkerDied,
    in_order,
)
from virnucpro.dispatch.stream import Stream
from virnucpro.dispatch.worker import BaseWorker, Result, Task
from virnucpro.dispatch.worker_handle import Rules
from virnucpro.dispatch.worker_main import Assignment
from virnucpro.errors import UsageError, WorkerError
from virnucpro.runtime.child import Setup
from virnucpro.runtime.devices import Device, devices_of_ranks, parse_devices

_log = logging.getLogger("virnucpro.dispatch")


class Callbacks:
    """The user's functions for the events of a run, called in the thread of `Dispatcher.run`.

    Parameters
    ----------
    on_success
        Called as ``on_success(task_id, result, worker_id)``.
    on_error
        ``on_error(task_id, traceback, worker_id)``: the task raised an exception, could not be
        pickled, or its worker died. ``worker_id`` is None if all workers failed before the task
        could start.
    on_timeout
        ``on_timeout(task_id, timeout, worker_id)``: the task exceeded the limit in seconds.
        By default, `on_error` is called with a sentence instead.
    on_setup_fail
        ``on_setup_fail(gpu_id, traceback)``: the setup of a worker failed permanently. Other
        workers run all tasks. By default, the failure is logged as a warning.
    on_task_start
        ``on_task_start(task_id, worker_id)``: a worker started an attempt at the task. It is called
        before the callback for the result or the error of the task.
    on_retry
        ``on_retry(task_id, attempts, error, worker_id)``: the worker died during the task, and the
        task is retried. ``attempts`` is the number of failed attempts.
    on_fault
        ``on_fault(event)`` with a `WorkerDied` or `CleanupFailed`. By default, the event is
        logged as a warning.
    """

    def __init__(
        self,
        on_success: Callable[[int, Any, int], object],
        on_error: Callable[[int, str, int | None], object] | None = None,
        on_timeout: Callable[[int, float, int], object] | None = None,
        on_setup_fail: Callable[[int, str], object] | None = None,
        on_task_start: Callable[[int, int], object] | None = None,
        on_retry: Callable[[int, int, str, int], object] | None = None,
        on_fault: Callable[[WorkerDied | CleanupFailed], object] | None = None,
    ) -> None:
        self._on_setup_fail = on_setup_fail or _log_setup_failure
        self._on_fault = on_fault or _log_fault
        # Each function is called with the attributes of its event.
        self._functions: dict[type, Callable[..., object] | None] = {
            TaskSuccess: on_success,
            TaskError: on_error,
            TaskTimeout: on_timeout,
            TaskStarted: on_task_start,
            TaskRetried: on_retry,
        }

    def call(self, event: Event) -> None:
        """Call the function for `event`: the user's function, else the default if there is one."""
        if isinstance(event, SetupFailed):
            self._on_setup_fail(event.gpu_id, event.error)
        elif isinstance(event, WorkerDied | CleanupFailed):
            self._on_fault(event)
        elif isinstance(event, TaskTimeout) and self._functions[TaskTimeout] is None:
            if on_error := self._functions[TaskError]:
                on_error(event.task_id, event.error, event.worker_id)
        elif function := self._functions.get(type(event)):
            function(*(getattr(event, name) for name in event.__match_args__))


def _log_setup_failure(gpu_id: int, error: str) -> None:
    _log.warning("the worker of gpu_id %d failed permanently in its setup: %s", gpu_id, error)


def _log_fault(fault: WorkerDied | CleanupFailed) -> None:
    if isinstance(fault, CleanupFailed):
        _log.warning("the worker of gpu_id %d failed in its cleanup: %s", fault.gpu_id, fault.error)
    else:
        doing = "idle" if fault.task_id is None else f"running task {fault.task_id}"
        _log.warning("worker %d died (%s) while %s", fault.worker_id, fault.exit, doing)


SETUP_S = 600.0
"""Default time limit of a worker's setup in seconds."""


class Dispatcher(Generic[Task, Result]):
    """Sends the tasks of a generator to worker processes; every task gets exactly one answer.

    `imap` yields the answers, failures too; `map` yields results and raises at a failure; `run`
    calls a function for each event.

    The generator and all callbacks run in the thread that calls these methods. The generator must
    not wait for an answer. While the generator or a callback blocks, dead workers are not replaced.
    At most `queue_size` tasks are in memory: received from the generator, but not answered yet.
    A worker gets its next task after the answer to the last one. If a worker dies, a new process
    replaces it, and its task is retried. A task may be started several times, but is answered once.

    The dispatcher sets no signal handlers: Ctrl-C stops the run and raises KeyboardInterrupt. If
    the program ends, the workers end too. The worker class must be in a module that can be
    imported, not in a notebook.

    Parameters
    ----------
    worker_cls
        Class of the workers.
    gpu_ids
        One worker is started for each id; ids may repeat, and be negative (no GPU). The worker
        sees all devices and must choose the device of its id. With `devices`, the ids only number
        the workers (default: 0, 1, ...).
    queue_size
        Maximum number of tasks in memory: received from the generator and not yet answered.
    suppress_worker_output
        Whether to discard the standard output and error of the workers.
    devices
        ``"auto"``, ``"cuda:0,2"``, ``"cpu:4"`` or a list of numbers, names and `Device` objects.
        Each worker then sees only its own device, as ``cuda:0``.
    max_attempts
        Maximum number of attempts for a task if workers die while they run it.
    ordered
        Whether to deliver answers in the order of the tasks.
    setup_timeout, cleanup_timeout
        Maximum duration in seconds of a worker's setup and cleanup; None for no limit. After the
        last answer, an unfinished setup must also end within `cleanup_timeout`.
    progress_timeout
        Maximum time in seconds that a worker with tasks makes no progress. Progress is the start or
        end of a task, a call of `BaseWorker.progressed`, or a transfer of bytes. A worker over the
        limit is treated as hung: it writes its stack traces to its log, is killed, and its task has
        failed one attempt. While one callback or generator call blocks, at most half of the limit
        is counted. Default: `progress_timeout` of the worker class.
    environment
        Environment variables of the workers, set before their imports.
    log_folder
        Folder for the workers' output, ``worker-0.log`` and so on; created if it is missing.

    Raises
    ------
    TypeError
        If `worker_cls` is not a subclass of `BaseWorker`, or `gpu_ids` are not integers.
    ValueError
        If `gpu_ids` is empty, `queue_size` or `max_attempts` is below 1, or a time limit is not a
        number above 0.
    """

    def __init__(
        self,
        worker_cls: type[BaseWorker[Task, Result]],
        gpu_ids: Sequence[int] | None = None,
        queue_size: int = 1024,
        suppress_worker_output: bool = False,  # noqa: FBT001, FBT002 - the signature that users know
        *,
        devices: str | Sequence[int | str | Device] | None = None,
        max_attempts: int = 2,
        ordered: bool = False,
        setup_timeout: float | None = SETUP_S,
        cleanup_timeout: float | None = 60.0,
        progress_timeout: float | None = None,
        environment: Mapping[str, str] | None = None,
        log_folder: Path | None = None,
    ) -> None:
        if BaseWorker not in getattr(worker_cls, "__mro__", ()):
            raise TypeError(f"worker_cls must be a subclass of BaseWorker, not {worker_cls!r}.")
        if queue_size < 1:
            raise ValueError(f"queue_size must be at least 1, not {queue_size}.")
        if progress_timeout is None:
            progress_timeout = worker_cls.progress_timeout
        self._rules = Rules(max_attempts, setup_timeout, cleanup_timeout, progress_timeout)
        ids = None if gpu_ids is None else list(gpu_ids)
        if not all(isinstance(number, SupportsIndex) for number in ids or ()):
            raise TypeError(f"gpu_ids must be integers, such as [0, 1], not {gpu_ids!r}.")
        masks = [{}] * len(ids or ()) if devices is None else _masks(devices)
        self.gpu_ids = list(range(len(masks))) if ids is None else ids
        if not self.gpu_ids:
            which = (
                "gpu_ids is empty" if ids is not None else "neither gpu_ids nor devices is given"
            )
            raise ValueError(f"{which}: give at least one device, such as devices='cpu:2'.")
        if len(masks) != len(self.gpu_ids):
            raise ValueError(
                f"gpu_ids has {len(self.gpu_ids)} entries, but devices has {len(masks)}. "
                "Give one device per entry of gpu_ids."
            )
        self.worker_cls = worker_cls
        self.queue_size = queue_size
        self.suppress_worker_output = suppress_worker_output
        self._ordered = ordered
        self._environments = [{**(environment or {}), **mask} for mask in masks]
        self._log_folder = log_folder
        self._busy = threading.Lock()
        self._loop: DispatchLoop | None = None
        self._stream = Stream((), 0)
        self._stats = DispatchStats()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.shutdown()

    def run(
        self,
        generator: Iterable[Task],
        on_success: Callable[[int, Result, int], object],
        on_error: Callable[[int, str, int | None], object] | None = None,
        on_timeout: Callable[[int, float, int], object] | None = None,
        on_setup_fail: Callable[[int, str], object] | None = None,
        on_task_start: Callable[[int, int], object] | None = None,
        on_exit: Callable[[], object] | None = None,
        base_seed: int = 42,
        task_timeout: float | None = None,
        total_tasks: int | None = None,  # noqa: ARG002 - for dashboards around this class
        *,
        on_retry: Callable[[int, int, str, int], object] | None = None,
        on_fault: Callable[[WorkerDied | CleanupFailed], object] | None = None,
        keywords: Mapping[str, Any] | None = None,
        **setup_kwargs: Any,  # noqa: ANN401 - the worker's own
    ) -> None:
        """Run all tasks; return when all workers have ended.

        Parameters
        ----------
        generator
            Yields the tasks: objects that can be pickled. They are numbered from 0.
        on_success, on_error, on_timeout, on_setup_fail, on_task_start, on_retry, on_fault
            See `virnucpro.dispatch.dispatcher.Callbacks`.
        on_exit
            Called once when all workers have ended, even if the run fails.
        base_seed
            The seed of a worker is this number plus its worker id.
        task_timeout
            Time limit of a task in seconds. Over the limit, Python code of the task is
            interrupted. If the task still does not end, its worker is killed and replaced.
        total_tasks
            Number of tasks; ignored here, used by `RichDispatcher`.
        **setup_kwargs
            Keyword arguments for the worker's ``setup``.
        keywords
            Mapping with more keyword arguments for ``setup``. It may contain names of parameters of
            `run`, such as ``total_tasks``.

        Raises
        ------
        RuntimeError
            If all workers failed permanently, this dispatcher is already running, or `terminate`
            stopped the run. If all workers failed, the tasks in memory are first answered with an
            error.
        ValueError
            If `task_timeout` is not a number above 0.
        UsageError
            If the worker class or its keywords cannot be sent to a process.
        Exception
            The error of the generator, raised when its earlier tasks are answered; the error of a
            callback, raised immediately.
        """
        callbacks = Callbacks(
            on_success, on_error, on_timeout, on_setup_fail, on_task_start, on_retry, on_fault
        )
        try:
            setup_kwargs |= keywords or {}
            rules = replace(self._rules, task_timeout=task_timeout)
            with self._events(generator, base_seed, setup_kwargs, rules) as events:
                self._deliver(in_order(events) if self._ordered else events, callbacks)
        finally:
            if on_exit is not None:
                on_exit()

    def imap(
        self,
        tasks: Iterable[Task],
        *,
        base_seed: int = 42,
        task_timeout: float | None = None,
        keywords: Mapping[str, Any] | None = None,
        **setup_kwargs: Any,  # noqa: ANN401 - the worker's own
    ) -> Iterator[Outcome[Task, Result]]:
        """Run the tasks of an iterable; yield one `Outcome` per task. No failed task raises.

        Outcomes come as the tasks finish, or with ``ordered=True`` of the dispatcher in the order
        of the tasks. After `shutdown`, no more tasks are read, and all tasks that were read have an
        outcome. The other parameters are those of `run`.

        Raises
        ------
        RuntimeError
            If all workers failed permanently, or `terminate` stopped the run. First, each task that
            was read and not answered has an outcome with status ``died``.
        Exception
            The error of the iterable, raised after the outcomes of its earlier tasks.
        """
        setup_kwargs |= keywords or {}
        return self._outcomes(tasks, base_seed, task_timeout, setup_kwargs, ordered=self._ordered)

    def map(
        self,
        iterable: Iterable[Task],
        *,
        base_seed: int = 42,
        task_timeout: float | None = None,
        keywords: Mapping[str, Any] | None = None,
        **setup_kwargs: Any,  # noqa: ANN401 - the worker's own
    ) -> Iterator[Result]:
        """Run the tasks of an iterable; yield their results in the order of the tasks.

        Raises
        ------
        WorkerError
            At the first task that fails, times out or kills its worker; the run then ends. With
            `imap`, failures are values and the run continues.
        RuntimeError, Exception
            As for `imap`.
        """
        setup_kwargs |= keywords or {}
        with closing(
            self._outcomes(iterable, base_seed, task_timeout, setup_kwargs, ordered=True)
        ) as outcomes:
            for outcome in outcomes:
                if outcome.status != "success":
                    raise WorkerError(
                        f"task {outcome.number} failed on worker {outcome.worker}: "
                        f"{outcome.error.rstrip()}\nmap stops at the first failed task. To receive "
                        "failures as values, use imap."
                    )
                yield cast("Result", outcome.value)

    def _outcomes(
        self,
        tasks: Iterable[Task],
        base_seed: int,
        task_timeout: float | None,
        keywords: dict[str, Any],
        *,
        ordered: bool,
    ) -> Generator[Outcome[Task, Result], None, None]:
        callbacks = Callbacks(lambda *_: None)
        rules = replace(self._rules, task_timeout=task_timeout)
        held: dict[int, Task] = {}  # the tasks in memory

        def numbered() -> Iterator[Task]:
            for number, task in enumerate(tasks):
                held[number] = task
                yield task

        with self._events(numbered(), base_seed, keywords, rules) as events:
            try:
                for event in in_order(events) if ordered else events:
                    self._stats.note(event)
                    if not isinstance(event, Answer):
                        callbacks.call(event)
                        continue
                    number = event.task_id
                    yield Outcome(
                        held.pop(number),
                        number,
                        event.status,
                        cast("Result | None", event.data),
                        event.error,
                        event.worker_id,
                        event.seconds,
                    )
                    self._stream.delivered += 1
            except RuntimeError as error:
                for number in sorted(held):
                    yield Outcome(held.pop(number), number, "died", None, str(error), None, 0.0)
                raise

    def shutdown(self) -> None:
        """Read no more tasks; the run ends when the tasks in memory are answered.

        This method returns immediately. Any thread, callback or signal handler may call it.
        """
        if self._loop is not None:
            self._loop.drain()

    def terminate(self) -> None:
        """Stop the run: the workers get SIGTERM, then SIGKILL, and `run` raises RuntimeError.

        This method returns immediately. Any thread may call it. It has no effect without
        a run.
        """
        if self._loop is not None:
            self._loop.terminate()

    def get_stats(self) -> dict[str, Any]:
        """Return the state of the current or last run. Any thread may call this.

        Returns
        -------
        A dict of counts: pending (tasks in memory, not running), running, completed, failed,
        timeouts, retries, deaths, setup_failures, cleanup_failures. Also recent (the last errors,
        one line each) and workers. For each worker id, workers has status (initializing, idle,
        processing, restarting, error, finished), current_task, task_start_time (seconds of
        `time.monotonic`), last_duration (seconds of the last task), and the counts of this worker.
        """
        loop, in_flight = self._loop, self._stream.in_flight
        busy = {} if loop is None else loop.current_tasks()
        stats = self._stats.as_dict()
        running = 0
        for worker_id, worker in stats["workers"].items():
            task, since = busy.get(worker_id, (None, None))
            if task is not None:
                worker["status"] = "processing"
                running = min(in_flight, running + 1)
            worker["current_task"], worker["task_start_time"] = task, since
        return {"pending": in_flight - running, "running": running, **stats}

    @contextmanager
    def _events(
        self,
        tasks: Iterable[Any],
        base_seed: int,
        keywords: dict[str, Any],
        rules: Rules,
    ) -> Iterator[Iterator[Event]]:
        """Return a context manager for one run; its value is an iterator of the run's events."""
        _check_importable(self.worker_cls)
        if not self._busy.acquire(blocking=False):
            raise RuntimeError("this dispatcher is already running: use a second dispatcher.")
        try:
            slots = self._slots(base_seed, rules.task_timeout, keywords)
            self._stream = Stream(tasks, self.queue_size)
            self._stats = DispatchStats(setup.rank for setup, _ in slots)
            self._loop = DispatchLoop(slots, self._stream, rules)
            with closing(self._loop.events()) as events:
                yield events
        finally:
            self._stats.finish()
            self._busy.release()

    def _deliver(self, events: Iterable[Event], callbacks: Callbacks) -> None:
        """Add each event to the statistics and call the user's callback for this event."""
        for event in events:
            self._stats.note(event)
            callbacks.call(event)
            if isinstance(event, Answer):
                self._stream.delivered += 1

    def _slots(
        self, base_seed: int, task_timeout: float | None, keywords: dict[str, Any]
    ) -> list[tuple[Setup, Assignment]]:
        log = Path(os.devnull) if self.suppress_worker_output else None
        folder = self._log_folder
        if folder is not None:
            folder.mkdir(parents=True, exist_ok=True)
        slots = []
        for worker_id, gpu_id, environment in zip(
            worker_ids(self.gpu_ids), self.gpu_ids, self._environments, strict=True
        ):
            if folder is not None:
                log = folder.absolute() / f"worker-{worker_id}.log"
            setup = Setup(worker_id, len(self.gpu_ids), os.getpid(), environment, log)
            seed = base_seed + worker_id
            slots.append((setup, Assignment(self.worker_cls, gpu_id, seed, task_timeout, keywords)))
        return slots


def worker_ids(gpu_ids: Sequence[int]) -> list[int]:
    """Return a unique number for each worker: its `gpu_id`, or a higher number if the id repeats.

    The k-th repetition of an id gets the number id + k * step. If no id is negative, step is the
    largest id + 1.
    """
    seen: dict[int, int] = {}
    step = max(gpu_ids) - min(0, *gpu_ids) + 1
    numbers = []
    for gpu_id in gpu_ids:
        numbers.append(gpu_id + step * seen.get(gpu_id, 0))
        seen[gpu_id] = seen.get(gpu_id, 0) + 1
    return numbers


def _masks(devices: str | Sequence[int | str | Device]) -> list[dict[str, str]]:
    """Return for each worker the environment variables that make only its device visible."""
    if isinstance(devices, str):
        chosen = parse_devices(devices, os.environ)
    else:
        chosen = devices_of_ranks(len(devices), devices, os.environ)
    return [device.environment for device in chosen]


def _check_importable(worker_cls: type) -> None:
    main = sys.modules["__main__"]
    if worker_cls.__module__ == "__main__" and not hasattr(main, "__file__"):
        raise UsageError(
            f"{worker_cls.__name__} was defined at a prompt or in a notebook: a worker cannot "
            "import it. Put the class into a module (a .py file) and import it from there."
        )

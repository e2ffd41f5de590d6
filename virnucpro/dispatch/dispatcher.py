"""A stream of tasks over worker processes that stay."""

import math
import os
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, Self

from virnucpro.dispatch.callbacks import Callbacks
from virnucpro.dispatch.engine import Engine
from virnucpro.dispatch.ordering import in_order
from virnucpro.dispatch.protocol import (
    Answers,
    CleanupFailed,
    Event,
    TaskError,
    TaskSuccess,
    TaskTimeout,
    WorkerDied,
)
from virnucpro.dispatch.rules import Rules
from virnucpro.dispatch.stats import DispatchStats
from virnucpro.dispatch.stream import Stream
from virnucpro.dispatch.worker import BaseWorker
from virnucpro.dispatch.worker_handle import WorkerSlot
from virnucpro.dispatch.worker_main import Assignment
from virnucpro.errors import UsageError, WorkerError
from virnucpro.runtime.devices import Device, devices_of_ranks, parse_devices

__all__ = ["SETUP_S", "Dispatcher", "worker_ids"]

SETUP_S = 600.0
"""Longest time in seconds of a set-up, unless another one is asked for."""


class Dispatcher:
    """Hands the tasks of a generator to workers, one process each; every task gets one answer.

    The generator and all callbacks run in the thread that calls `run`, one at a time: the generator
    must not wait for an answer, and while either blocks, no worker is replaced. Of the tasks
    that were taken from the generator never more than `queue_size` are not yet delivered, results
    included. A worker that dies is replaced; only the task that it was running is charged with it,
    the others are done elsewhere: a task may be *begun* more than once, and is answered once.

    Nothing here touches signal handlers: Ctrl-C breaks the run off and is raised, and a process
    that ends, however it ends, takes its workers along. A worker must stand in a module that can be
    imported; one in a notebook's cell cannot.

    Parameters
    ----------
    worker_cls
        What does the tasks.
    gpu_ids
        One worker each; an id may occur several times. The worker sees all devices and chooses
        the one of its id. With `devices`, their numbers 0, 1, ... by default.
    queue_size
        Most tasks that were taken and not yet delivered.
    suppress_worker_output
        Whether what the workers print is thrown away.
    devices
        ``"auto"``, ``"cuda:0,2"``, ``"cpu:4"`` or a list of numbers, names and `Device` objects:
        each worker then sees its own device alone, as ``cuda:0``.
    max_attempts
        How often a task may be begun whose workers die of it, before that is its answer.
    ordered
        Whether answers come in the order of the tasks.
    setup_timeout, cleanup_timeout
        Seconds that a worker may take to set up and to put away, None for as long as it takes. One
        that still sets up when all tasks are answered has the shorter time.
    progress_timeout
        Seconds that a worker may go on with its tasks without progress: a task's end or beginning,
        a word by `BaseWorker.progressed`, or bytes of a task or result that flow. One that exceeds
        it hangs: it is ended, writes what it was doing into its log where it has one, and its task
        counts as one that its worker died of. The time in which a worker waits for a callback or
        the generator is not its own; that in which it could work beside them is, up to half the
        limit for each. Pickling of gigabytes within the worker is progress only when it ends. None
        for what the worker's class says.
    one_at_a_time
        Whether a worker gets a task only when it has answered the last one. Else tasks that take
        milliseconds travel in batches, and one may wait behind a longer one.
    environment
        Variables to set in the workers' processes before anything else is imported there.
    log_folder
        Takes what the workers print, ``worker-0.log`` and so on; made where it is not there.

    Raises
    ------
    TypeError
        When `worker_cls` is no `BaseWorker`.
    ValueError
        When there is no worker, `queue_size` or `max_attempts` is below 1, or a time limit is not a
        number above 0.
    """

    def __init__(
        self,
        worker_cls: type[BaseWorker],
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
        one_at_a_time: bool = False,
        environment: Mapping[str, str] | None = None,
        log_folder: Path | None = None,
    ) -> None:
        if not _is_worker(worker_cls):
            raise TypeError(f"worker_cls must be a subclass of BaseWorker, not {worker_cls!r}.")
        if queue_size < 1 or max_attempts < 1:
            raise ValueError("queue_size and max_attempts must be at least 1.")
        if progress_timeout is None:
            progress_timeout = worker_cls.progress_timeout
        _refuse_no_time("progress_timeout", progress_timeout)
        _refuse_no_time("setup_timeout", setup_timeout)
        _refuse_no_time("cleanup_timeout", cleanup_timeout)
        self._masks = None if devices is None else _masks(devices)
        if gpu_ids is None and self._masks is not None:
            gpu_ids = range(len(self._masks))
        if gpu_ids is None or len(gpu_ids) == 0:
            raise ValueError("gpu_ids cannot be empty: name a device for each worker.")
        if self._masks is not None and len(self._masks) != len(gpu_ids):
            raise ValueError(
                f"{len(gpu_ids)} gpu_ids for {len(self._masks)} devices: give as many."
            )
        self.worker_cls = worker_cls
        self.gpu_ids = list(gpu_ids)
        self.queue_size = queue_size
        self.suppress_worker_output = suppress_worker_output
        self._max_attempts = max_attempts
        self._ordered = ordered
        self._setup_timeout = setup_timeout
        self._cleanup_timeout = cleanup_timeout
        self._progress_timeout = progress_timeout
        self._one_at_a_time = one_at_a_time
        self._environment = dict(environment or {})
        self._log_folder = log_folder
        self._busy = threading.Lock()
        self._engine: Engine | None = None
        self._stream = Stream((), 0)
        self._tally = DispatchStats()
        self._durations: dict[int, float] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.shutdown()

    def run(
        self,
        generator: Iterable[Any],
        on_success: Callable[[int, Any, int], object],
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
        """Do all tasks; return when the workers have put away and ended.

        Parameters
        ----------
        generator
            Gives the tasks, numbered from 0 on; anything that can be pickled.
        on_success, on_error, on_timeout, on_setup_fail, on_task_start, on_retry, on_fault
            See `virnucpro.dispatch.callbacks.Callbacks`.
        on_exit
            Called once, when no worker is left, however the run ends.
        base_seed
            A worker's seed is this plus its worker id.
        task_timeout
            Seconds. Python code is interrupted within the worker; a worker that does not heed that
            within a second is killed and replaced.
        total_tasks
            How many tasks there will be, for those who show progress.
        **setup_kwargs
            For the worker's ``setup``.
        keywords
            More of them, whatever they are called.

        Raises
        ------
        RuntimeError
            When no worker is left; all tasks that were taken have been answered. Or when this
            dispatcher is at work already, or the run was broken off by `terminate`.
        ValueError
            When `task_timeout` is not a number above 0.
        UsageError
            When the worker or its keywords cannot be sent to a process.
        Exception
            What the generator raised, once the tasks before it are answered; what a callback
            raised, at once.
        """
        callbacks = Callbacks(
            on_success, on_error, on_timeout, on_setup_fail, on_task_start, on_retry, on_fault
        )
        try:
            with self._events(
                generator,
                base_seed,
                task_timeout,
                setup_kwargs | dict(keywords or {}),
                report_starts=on_task_start is not None,
            ) as events:
                _deliver(events, callbacks, self._stream, self._tally)
        finally:
            if on_exit is not None:
                on_exit()

    def map(
        self,
        iterable: Iterable[Any],
        *,
        base_seed: int = 42,
        task_timeout: float | None = None,
        keywords: Mapping[str, Any] | None = None,
        **setup_kwargs: Any,  # noqa: ANN401 - the worker's own
    ) -> Iterator[Any]:
        """Yield the results lazily, in the order of the tasks.

        Raises
        ------
        WorkerError
            In place of the result of a task that failed or timed out.
        """
        quiet = Callbacks(lambda *_: None)
        with self._events(
            iterable,
            base_seed,
            task_timeout,
            setup_kwargs | dict(keywords or {}),
            report_starts=False,
            ordered=True,
        ) as events:
            for event in events:
                self._tally.note(event)
                match event:
                    case TaskSuccess(_, data, worker_id):
                        self._tally.share(worker_id).completed += 1
                        yield data
                        self._stream.delivered += 1
                    case TaskError(task_id, error, worker_id):
                        raise WorkerError(f"task {task_id} failed on worker {worker_id}: {error}")
                    case TaskTimeout(task_id, limit, worker_id):
                        raise WorkerError(
                            f"task {task_id} took longer than {limit:g} s on worker {worker_id}."
                        )
                    case _:
                        quiet.tell(event)

    def shutdown(self) -> None:
        """Have the run end early: tasks that were taken are answered, no more are taken.

        Returns at once; from any thread, a callback or a signal's handler.
        """
        engine = self._engine
        if engine is not None:
            engine.drain()

    def terminate(self) -> None:
        """Have the run broken off: its workers are asked to end, then killed; `run` raises.

        Returns at once; from any thread. Without a run there is nothing to break off.
        """
        engine = self._engine
        if engine is not None:
            engine.terminate()

    def get_stats(self) -> dict[str, Any]:
        """Say how the run stands, or how the last one ended.

        Returns
        -------
        pending (taken, and no worker has begun on it), running, completed, failed, timeouts,
        retries, deaths, setup_failures, cleanup_failures, recent (the last troubles, a line each),
        and workers: for each worker id its status (initializing, idle, processing, restarting,
        error, finished), current_task, task_start_time (seconds of `time.monotonic`),
        last_duration (seconds), and its part of the numbers.
        """
        engine, in_flight = self._engine, self._stream.in_flight
        at_work = engine.at_work() if engine is not None else {}
        durations = engine.durations() if engine is not None else self._durations
        stats = self._tally.as_dict()
        for worker_id, share in stats["workers"].items():
            work = at_work.get(worker_id)
            if work is not None:
                share["status"] = "processing"
            share["current_task"] = None if work is None else work.task_id
            share["task_start_time"] = None if work is None else work.since
            share["last_duration"] = durations.get(worker_id)
        running = min(in_flight, len(at_work))
        return {"pending": in_flight - running, "running": running, **stats}

    @contextmanager
    def _events(
        self,
        tasks: Iterable[Any],
        base_seed: int,
        task_timeout: float | None,
        keywords: dict[str, Any],
        *,
        report_starts: bool,
        ordered: bool = False,
    ) -> Iterator[Iterator[Event]]:
        _refuse_no_time("task_timeout", task_timeout)
        _refuse_what_no_child_finds(self.worker_cls)
        if not self._busy.acquire(blocking=False):
            raise RuntimeError(
                "this dispatcher is at work; use another one for a run within a run."
            )
        try:
            ordered = ordered or self._ordered
            rules = Rules(
                self._max_attempts,
                task_timeout,
                self._setup_timeout,
                self._cleanup_timeout,
                self._progress_timeout,
                fair=not ordered,
                report_starts=report_starts,
                one_at_a_time=self._one_at_a_time,
            )
            self._stream = Stream(tasks, self.queue_size)
            self._tally = DispatchStats()
            places = self._places(base_seed, task_timeout, keywords)
            for place in places:
                self._tally.share(place.worker_id)
            most = max(1, self.queue_size // (2 * len(places)))
            self._engine = Engine(places, self._stream, rules, most)
            with closing(self._engine.events()) as events:
                yield in_order(events) if ordered else events
        finally:
            if self._engine is not None:
                self._durations = self._engine.durations()
            self._engine = None
            self._tally.finish()
            self._busy.release()

    def _places(
        self, base_seed: int, task_timeout: float | None, keywords: dict[str, Any]
    ) -> list[WorkerSlot]:
        masks = self._masks or [{} for _ in self.gpu_ids]
        if self._log_folder is not None:
            self._log_folder.mkdir(parents=True, exist_ok=True)
        return [
            WorkerSlot(
                worker_id,
                Assignment(self.worker_cls, gpu_id, base_seed + worker_id, task_timeout, keywords),
                self._environment | mask,
                self._log(worker_id),
            )
            for worker_id, gpu_id, mask in zip(
                worker_ids(self.gpu_ids), self.gpu_ids, masks, strict=True
            )
        ]

    def _log(self, worker_id: int) -> Path | None:
        if self._log_folder is not None:
            return self._log_folder.absolute() / f"worker-{worker_id}.log"
        return Path(os.devnull) if self.suppress_worker_output else None


def worker_ids(gpu_ids: Sequence[int]) -> list[int]:
    """Give the workers numbers: by their device, and distinct where a device occurs again.

    The k-th repetition of an id counts on from the highest id, k times.
    """
    seen: dict[int, int] = {}
    step = max(gpu_ids) - min(0, *gpu_ids) + 1
    numbers = []
    for gpu_id in gpu_ids:
        numbers.append(gpu_id + step * seen.get(gpu_id, 0))
        seen[gpu_id] = seen.get(gpu_id, 0) + 1
    return numbers


def _is_worker(candidate: object) -> bool:
    return isinstance(candidate, type) and issubclass(candidate, BaseWorker)


def _refuse_no_time(name: str, seconds: float | None) -> None:
    if seconds is not None and not 0 < seconds < math.inf:  # a comparison with NaN is never true
        raise ValueError(f"{name} must be a number of seconds above 0, or None for no limit.")


def _masks(devices: str | Sequence[int | str | Device]) -> list[dict[str, str]]:
    if isinstance(devices, str):
        chosen = parse_devices(devices, os.environ)
    else:
        chosen = devices_of_ranks(len(devices), devices, os.environ)
    return [dict(device.environment) for device in chosen]


def _refuse_what_no_child_finds(worker_cls: type) -> None:
    main = sys.modules["__main__"]
    if worker_cls.__module__ == "__main__" and not hasattr(main, "__file__"):
        raise UsageError(
            f"{worker_cls.__name__} was defined at a prompt or in a notebook: no other process can "
            "import it. Put the class into a module (a .py file) and import it from there."
        )


def _deliver(
    events: Iterable[Event], callbacks: Callbacks, stream: Stream, tally: DispatchStats
) -> None:
    """Call the callbacks, and count what was delivered."""
    on_success = callbacks.on_success
    for event in events:
        if type(event) is Answers:
            share, worker_id = tally.share(event.worker_id), event.worker_id
            for task_id, data in zip(event.task_ids, event.data, strict=True):
                share.completed += 1
                on_success(task_id, data, worker_id)
            stream.delivered += len(event.data)
            continue
        if type(event) is TaskSuccess:
            tally.share(event.worker_id).completed += 1
        else:
            tally.note(event)
        callbacks.tell(event)
        if isinstance(event, TaskSuccess | TaskError | TaskTimeout):
            stream.delivered += 1

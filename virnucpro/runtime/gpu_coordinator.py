"""Execution of one function in independent processes, one process per rank (SPMD)."""

import os
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from inspect import isasyncgenfunction, iscoroutinefunction, isgeneratorfunction
from pathlib import Path
from typing import Any, NoReturn, Self

from virnucpro.errors import UsageError, WorkerError
from virnucpro.run_dir import RunDirectory
from virnucpro.runtime import supervisor
from virnucpro.runtime.child import Setup, WorkerFunction
from virnucpro.runtime.devices import Device, devices_of_ranks, thread_variables
from virnucpro.runtime.messages import Ask, Failure, Report, encode_answer
from virnucpro.runtime.process import SPAWN, SpawnContext, SpawnProcess
from virnucpro.runtime.results import ResultsQueue
from virnucpro.runtime.signals import StopRequested
from virnucpro.runtime.status import (
    Death,
    WorkerState,
    WorkerStatus,
    after_exit,
    after_message,
    waiting,
)
from virnucpro.runtime.supervisor import Event, Late, StopMethod, Supervisor
from virnucpro.runtime.watchdog import NEVER, Deadlines, Watched

_EXTRA_S = 1.0
"""Extra seconds for a stop, in addition to the waits after SIGTERM and SIGKILL."""

_FAILED = "stopped: the supervisor thread failed"

_NOT_RUN_BY_A_CALL = (isgeneratorfunction, iscoroutinefunction, isasyncgenfunction)


class GPUProcessCoordinator:
    """Runs one function on every device, in one process per device, and records how each ends.

    If a worker raises, exits, is killed or hangs, the other workers continue; the worker's status
    shows the reason. Use the coordinator in a ``with`` block, whose end terminates all workers.

    Parameters
    ----------
    world_size
        Number of workers.
    output_dir
        Folder of the run; the workers' output is in its ``run/logs/rank-0000.log`` and so on.
    devices
        Rank r gets the r-th device; see `virnucpro.runtime.devices.devices_of_ranks`.
    threads
        Number of threads of each worker's numeric libraries; None for the libraries' default.
    logs
        Whether to write the workers' standard output and error to their log files.
    attempt
        Attempt of a task, whose folder in that of the run has the logs; see `RunDirectory`.
    deadlines
        Maximum times without progress. A worker that exceeds a deadline is terminated and failed.

    Attributes
    ----------
    ctx
        The multiprocessing context (spawn).
    devices
        The device of each rank.
    results_queue
        Queue of the workers' results, still available after the workers have ended.

    Raises
    ------
    UsageError
        If `world_size` is not positive, or an entry of `devices` is invalid.
    DeviceError
        If there are fewer devices than ranks.

    Notes
    -----
    The workers are spawned: a script that uses a coordinator needs the
    ``if __name__ == "__main__":`` guard, and worker functions must be at the top level of a module.
    """

    def __init__(
        self,
        world_size: int,
        output_dir: Path | str,
        devices: Sequence[int | str | Device] | None = None,
        *,
        threads: int | None = None,
        logs: bool = True,
        attempt: str = "",
        deadlines: Deadlines = NEVER,
    ) -> None:
        if world_size < 1:
            raise UsageError(f"world_size is {world_size}; at least one worker is needed.")
        self.world_size = world_size
        self.output_dir = Path(output_dir)
        self.devices = devices_of_ranks(world_size, devices, os.environ)
        self.ctx: SpawnContext = SPAWN
        self.results_queue = ResultsQueue()
        self._threads = threads
        self._paths = RunDirectory(self.output_dir.absolute(), attempt) if logs else None
        self._deadlines = deadlines
        self._changed = threading.Condition()
        self._owner = os.getpid()
        self._forget()

    def _forget(self) -> None:
        """Set the state of a coordinator without workers."""
        self._worker_fn: WorkerFunction | None = None
        self._statuses: dict[int, WorkerStatus] = {}
        self._processes: dict[int, SpawnProcess] = {}
        self._thread: threading.Thread | None = None
        # Requests to the supervisor thread, which starts, answers and stops all workers.
        self._scheduled: dict[int, tuple[float, tuple[Any, ...]]] = {}
        self._answers: list[tuple[int, int, bytes]] = []
        self._unneeded: dict[int, str] = {}
        self._stopping = ""
        # Its reports.
        self._stopped: dict[int, str] = {}
        self._stuck: list[str] = []
        self._changes = self._seen = 0
        self._over = True
        self._error: BaseException | None = None

    @property
    def workers(self) -> dict[int, SpawnProcess]:
        """The current or last process of each rank."""
        return dict(self._processes)

    @property
    def statuses(self) -> dict[int, WorkerStatus]:
        """The current status of each rank; empty before `spawn_workers`."""
        with self._changed:
            return dict(self._statuses)

    def spawn_workers(self, worker_fn: WorkerFunction, worker_args: tuple[Any, ...] = ()) -> None:
        """Start ``worker_fn(rank, world_size, results_queue, *worker_args)`` on every rank.

        The worker's `results_queue` has ``put(payload)`` for results of any size,
        ``progress(done, total)``, which updates `statuses`, and ``ask()``, which waits for an
        answer, see `answer_worker`. The worker imports the function's
        module after CUDA_VISIBLE_DEVICES is set.

        Raises
        ------
        UsageError
            If workers were spawned before. Also if the function or its arguments cannot be
            pickled, or the function is a generator or coroutine function; no worker is running
            after this error.
        OSError
            If a log cannot be created, or the system cannot start a process.
        RuntimeError
            If the system cannot start a thread.
        """
        if self._worker_fn is not None:
            raise UsageError("this coordinator already has workers: create a new coordinator.")
        if any(is_other(worker_fn) for is_other in _NOT_RUN_BY_A_CALL):
            raise UsageError(
                f"the worker function {worker_fn!r} is a generator or coroutine function, so a "
                "call does not run it: give a plain function that calls results_queue.put"
            )
        if self._paths:
            self._paths.logs.mkdir(parents=True, exist_ok=True)
        self._worker_fn, self._owner = worker_fn, os.getpid()
        self._scheduled = dict.fromkeys(range(self.world_size), (0.0, tuple(worker_args)))
        try:
            self._start_thread()
            self._wait_for_start()
        except BaseException:  # an interrupt, or the thread or a process cannot start
            self._stop("stopped with the run")
            self._forget()
            raise

    def respawn_worker(
        self, rank: int, worker_args: tuple[Any, ...] = (), delay: float = 0.0
    ) -> None:
        """Restart an ended worker in `delay` seconds.

        The worker calls the function of `spawn_workers` with new arguments. Until the restart, its
        state is ``waiting``. If the system cannot start the process, it becomes ``failed``.

        Raises
        ------
        UsageError
            If the worker of this rank has not ended, or was never spawned.
        """
        self._refuse_fork()
        with self._changed:
            status = self._statuses.get(rank)
            if status is None:
                raise UsageError(f"cannot restart worker {rank}: it was never started.")
            if self._stopping or not status.ended:
                raise UsageError(
                    f"cannot restart worker {rank}: it is still running, or the job "
                    "is being stopped."
                )
            self._set_status(waiting(status))
            self._scheduled[rank] = time.monotonic() + delay, tuple(worker_args)
            if self._over:
                self._start_thread()
            else:
                self._children.wake()

    def stop_worker(self, rank: int, why: str) -> None:
        """End the worker of one rank with SIGTERM, then SIGKILL; `why` is the recorded reason.

        The call does not wait for the end of the worker, whose state becomes ``stopped``. Its
        scheduled restart is cancelled. An ended worker is ignored.
        """
        self._refuse_fork()
        with self._changed:
            if not self._over:
                self._unneeded[rank] = f"stopped: {why}"
                self._children.wake()

    def answer_worker(self, rank: int, payload: object) -> None:
        """Send the answer to a worker that called ``results_queue.ask()``; the call does not wait.

        `WorkerStatus.asked` counts the questions of a worker. An ended worker is ignored.

        Raises
        ------
        ValueError
            If the pickled `payload` has more than 64 KiB.
        """
        self._refuse_fork()
        data = encode_answer(payload)
        with self._changed:
            if not self._over:
                self._answers.append((rank, self._statuses[rank].attempt, data))
                self._children.wake()

    def wait_for_change(self, timeout: float | None = None) -> None:
        """Wait until a worker changes its state, asks or reports, at most `timeout` seconds.

        Changes since the last call count.

        Raises
        ------
        WorkerError
            If the supervisor thread failed; all workers were killed.
        """
        self._refuse_fork()
        with self._changed:
            self._changed.wait_for(lambda: self._changes != self._seen, timeout)
            self._refuse_broken()
            self._seen = self._changes

    def wait_for_completion(self, timeout: float | None = None) -> dict[int, bool]:
        """Wait until all workers have ended, at most `timeout` seconds in total.

        Returns
        -------
        For each rank, whether its worker succeeded; False if it is still running. The reasons of
        failures are in `statuses`.

        Raises
        ------
        WorkerError
            If the supervisor thread failed; all workers were killed.
        """
        self._refuse_fork()
        with self._changed:
            self._changed.wait_for(lambda: self._over, timeout)
            self._refuse_broken()
            over = self._over
        if over:
            self._join_thread()
        return {rank: status.succeeded for rank, status in self.statuses.items()}

    def collect_results(self) -> list[Any]:
        """Remove and return all results that have arrived, in order of arrival.

        Raises
        ------
        WorkerError
            If a result cannot be unpickled; a second call returns the other results.
        """
        return self.results_queue.take_all()

    def terminate_all(self) -> None:
        """End all workers with SIGTERM, then SIGKILL; return when their ends are recorded.

        A fork of the process that spawned the workers leaves them alone.

        Raises
        ------
        WorkerError
            If a process survives SIGKILL: it is stuck in the kernel. Also if the supervisor thread
            does not end in time.
        """
        if self._worker_fn is not None and not self._forked:
            error = sys.exception()
            interrupted = isinstance(error, StopRequested | KeyboardInterrupt)
            self._stop(
                f"stopped by {str(error) or 'SIGINT'}" if interrupted else "stopped with the run"
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.terminate_all()

    # --- in the caller's thread

    @property
    def _forked(self) -> bool:
        """Whether this process is a fork of the one that spawned the workers."""
        return os.getpid() != self._owner

    def _refuse_fork(self) -> None:
        if self._forked:
            raise UsageError(
                "the workers belong to the process before the fork: create a new coordinator."
            )

    def _wait_for_start(self) -> None:
        with self._changed:
            self._changed.wait_for(lambda: len(self._statuses) == self.world_size or self._over)
        if self._error is not None:
            raise self._error

    def _stop(self, why: str) -> None:
        grace = supervisor.TERMINATE_GRACE_S + supervisor.KILL_GRACE_S + _EXTRA_S
        with self._changed:
            for status in list(self._statuses.values()):
                # The signal went to the whole process group and killed this worker first.
                if status.state is WorkerState.FAILED and why.endswith(f" {status.exit}"):
                    self._set_status(replace(status, state=WorkerState.STOPPED, reason=why))
            if not self._over:
                self._stopping = why
                self._children.wake()
            over = self._changed.wait_for(lambda: self._over, grace)
            stuck, self._stuck = self._stuck, []
        if over:
            self._join_thread()
        else:
            self._kill_unsupervised(grace)
        if stuck:
            raise WorkerError(
                f"{', '.join(stuck)} still runs "
                f"{supervisor.KILL_GRACE_S:.0f} s after SIGKILL: stuck in the kernel, in a driver "
                "or a file system. Check dmesg; the node may need a reboot."
            )

    def _kill_unsupervised(self, grace: float) -> NoReturn:
        """Kill all workers, since the supervisor thread did not stop them in `grace` seconds."""
        statuses = self.statuses
        for rank, process in self.workers.items():
            if not statuses[rank].ended:
                process.kill()
        raise WorkerError(
            f"the supervisor thread did not stop the workers within {grace:.0f} s. They were "
            "killed; the state of each worker is unknown. Rerun the command to resume."
        )

    def _refuse_broken(self) -> None:
        if self._error is not None:
            raise WorkerError("the supervisor thread failed; report this bug") from self._error

    def _start_thread(self) -> None:
        """Start a supervisor thread. The thread ends when the last worker has ended."""
        self._thread = threading.Thread(target=self._run, name="virnucpro-supervisor", daemon=True)
        limits = self._deadlines.start, self._deadlines.progress, self._deadlines.stop
        self._children = Supervisor(self._watched, limits, StopMethod.TERMINATE)
        self._over = False
        try:
            self._thread.start()
        except BaseException:  # an interrupt, or the thread cannot start
            if self._thread.ident is None:
                self._cancel(dict.fromkeys(self._scheduled, _FAILED))
                self._children.close()
                self._end()
            raise

    def _join_thread(self) -> None:
        """Join the ended supervisor thread, which frees the descriptors of the processes."""
        if self._thread is not None and self._thread.ident is not None:
            self._thread.join()

    # --- in the supervisor thread: the kernel kills the children of a thread that ends

    def _run(self) -> None:
        children = self._children
        try:
            self._start_what_is_due()
            while not self._all_done():
                for rank, event in children.step(self._patience()):
                    self._handle_event(rank, event)
                self._send_answers()
                self._stop_unneeded()
                self._start_what_is_due()
        except BaseException as error:  # noqa: BLE001 - raised in the threads that wait
            self._error = error
            self._cancel(dict.fromkeys(self._scheduled, _FAILED))
            left = children.ranks
            children.close()
            for rank in left:
                self.results_queue.add_senders(-1)
                status = after_exit(self._statuses[rank], Death(None), time.monotonic(), _FAILED)
                self._set_status(status)
            self._end()
        finally:
            children.close()

    def _all_done(self) -> bool:
        """Return whether all workers have ended and no start is scheduled.

        If so, notify the threads that wait for the workers.
        """
        with self._changed:
            done = not self._children.ranks and not self._scheduled
            if done:
                self._end()
            return done

    def _end(self) -> None:
        with self._changed:
            self._over = True
            self._note_change()

    def _start_what_is_due(self) -> None:
        now = time.monotonic()
        with self._changed:
            due = [rank for rank, (at, _) in self._scheduled.items() if at <= now]
        for rank in due:
            if self._stopping:
                break
            _, arguments = self._scheduled.pop(rank)  # first: once it has failed, it may be renewed
            try:
                self._start(rank, arguments)
            except OSError as error:
                if rank not in self._statuses:
                    raise
                former = self._statuses[rank]
                self._set_status(
                    replace(
                        former,
                        state=WorkerState.FAILED,
                        attempt=former.attempt + 1,
                        kind=type(error).__name__,
                        reason=f"the restart failed: {error}",
                        place=(),
                        begun={},
                    )
                )

    def _start(self, rank: int, arguments: tuple[Any, ...]) -> None:
        assert self._worker_fn is not None
        now, name = time.monotonic(), f"virnucpro-rank-{rank:04d}"
        child = self._children.start(name, self._setup(rank), self._worker_fn, arguments)
        self.results_queue.add_senders(1)
        self._processes[rank] = child.process
        status = WorkerStatus(rank, WorkerState.STARTING, child.process.pid, now, now)
        former = self._statuses.get(rank)
        if former is not None:
            status = replace(
                status,
                attempt=former.attempt + 1,
                faults=former.faults,
                done=former.done,
                total=former.total,
            )
        self._set_status(status)

    def _setup(self, rank: int) -> Setup:
        variables = thread_variables(self._threads, os.environ)
        environment = self.devices[rank].environment | variables
        log = self._paths.log(rank) if self._paths else None
        return Setup(rank, self.world_size, os.getpid(), environment, log)

    def _patience(self) -> float | None:
        with self._changed:
            next_start = min((at for at, _ in self._scheduled.values()), default=None)
        return None if next_start is None else max(0.0, next_start - time.monotonic())

    def _watched(self) -> Iterator[Watched]:
        for rank in self._children.ranks:
            status = self._statuses[rank]
            if status.waits:
                continue
            limit, fault = self._deadlines.progress, "it made no progress"
            if status.returned:
                limit, fault = (
                    self._deadlines.stop,
                    "after its function returned, its process did not exit",
                )
            elif not status.begun:
                limit, fault = self._deadlines.start, "it did not finish its setup"
            if limit is not None:
                sign = status.attempt, status.done, status.total, status.begun
                yield Watched(rank, fault, limit, sign)

    def _handle_event(self, rank: int, event: Event) -> None:
        now, status = time.monotonic(), self._statuses[rank]
        if isinstance(event, Late):
            self._set_status(replace(status, kind="Hang", reason=event.watched.why))
        elif isinstance(event, Death):
            if event.stuck and self._stopping:
                self._stuck.append(f"worker {rank} (pid {status.pid})")
            self.results_queue.add_senders(-1)
            self._set_status(after_exit(status, event, now, self._stopped.pop(rank, "")))
        else:
            if isinstance(event, Report):
                self.results_queue.add(rank, event.payload)
            self._set_status(after_message(status, event, now))
            if isinstance(event, Ask | Report | Failure):
                self._note_change()

    def _send_answers(self) -> None:
        with self._changed:
            answers, self._answers = self._answers, []
        for rank, attempt, data in answers:
            status = self._statuses[rank]
            # Not to a later attempt: it has not asked.
            if rank in self._children.ranks and status.attempt == attempt:
                self._children.send(rank, data)
                self._set_status(replace(status, answered=status.answered + 1))

    def _stop_unneeded(self) -> None:
        with self._changed:
            unneeded, self._unneeded = self._unneeded, {}
            if self._stopping:
                unneeded = dict.fromkeys(range(self.world_size), self._stopping)
        self._cancel(unneeded)
        for rank in self._children.ranks:
            if rank in unneeded and rank not in self._stopped:
                # A worker that has reported an exception counts as failed, not as stopped.
                self._stopped[rank] = "" if self._statuses[rank].kind else unneeded[rank]
                self._children.end(rank)

    def _cancel(self, ranks: Mapping[int, str]) -> None:
        """Cancel the scheduled starts of `ranks`, which maps each rank to the recorded reason."""
        with self._changed:
            for rank in ranks.keys() & self._scheduled.keys():
                del self._scheduled[rank]
                if status := self._statuses.get(rank):
                    self._set_status(replace(status, state=WorkerState.STOPPED, reason=ranks[rank]))

    def _set_status(self, status: WorkerStatus) -> None:
        with self._changed:
            former = self._statuses.get(status.rank)
            self._statuses[status.rank] = status
            if former is None or former.state is not status.state:
                self._note_change()

    def _note_change(self) -> None:
        with self._changed:
            self._changes += 1
            self._changed.notify_all()

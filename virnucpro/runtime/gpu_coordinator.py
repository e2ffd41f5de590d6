"""Execution of one function in independent processes, one process per rank (SPMD)."""

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

from virnucpro.errors import UsageError
from virnucpro.run_dir import RunDirectory
from virnucpro.runtime.child import Setup, WorkerFunction
from virnucpro.runtime.devices import Device, devices_of_ranks, thread_variables
from virnucpro.runtime.process import SPAWN, SpawnContext, SpawnProcess
from virnucpro.runtime.rank_supervisor import ProcessSpec, RankSupervisor, ResultsQueue
from virnucpro.runtime.signals import StopRequested
from virnucpro.runtime.status import WorkerStatus
from virnucpro.runtime.watchdog import NEVER, Deadlines


class GPUProcessCoordinator:
    """Runs one function on every device, in one process per device, and records how each ends.

    If a worker raises, exits, is killed or hangs, the other workers continue; the worker's status
    shows the reason. Use the coordinator in a ``with`` block, whose end terminates all workers.

    Parameters
    ----------
    world_size
        Number of workers.
    output_dir
        Folder of the run; the workers' output is in its ``logs/rank-0000.log`` and so on.
    devices
        Rank r gets the r-th device; see `virnucpro.runtime.devices.devices_of_ranks`.
    threads
        Number of threads of each worker's numeric libraries; None for the libraries' default.
    logs
        Whether to write the workers' standard output and error to their log files.
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
        self._logs = logs
        self._deadlines = deadlines
        self._supervisor: RankSupervisor | None = None
        self._worker_fn: WorkerFunction | None = None
        self._changes = 0

    @property
    def workers(self) -> dict[int, SpawnProcess]:
        """The current or last process of each rank."""
        return {} if self._supervisor is None else self._supervisor.processes

    @property
    def statuses(self) -> dict[int, WorkerStatus]:
        """The current status of each rank; empty before `spawn_workers`."""
        return {} if self._supervisor is None else self._supervisor.statuses

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
            pickled; no worker is running after this error.
        OSError
            If a log cannot be created, or the system cannot start a process.
        """
        if self._supervisor is not None:
            raise UsageError("this coordinator already has workers: create a new coordinator.")
        if self._logs:
            RunDirectory(self.output_dir).logs.mkdir(parents=True, exist_ok=True)
        supervisor = RankSupervisor(
            [
                ProcessSpec(self._setup(rank), worker_fn, tuple(worker_args))
                for rank in range(self.world_size)
            ],
            self.results_queue,
            self._deadlines,
        )
        self._supervisor, self._worker_fn = supervisor, worker_fn
        try:
            supervisor.start()
        except BaseException:
            self._supervisor = None
            raise

    def respawn_worker(
        self, rank: int, worker_args: tuple[Any, ...] = (), delay: float = 0.0
    ) -> None:
        """Restart an ended worker in `delay` seconds.

        The worker calls the function of `spawn_workers` with new arguments. Until the restart, its
        state is ``waiting``.

        Raises
        ------
        UsageError
            If the worker of this rank has not ended, or was never spawned.
        """
        if self._supervisor is None or self._worker_fn is None or rank not in self.statuses:
            raise UsageError(f"cannot restart worker {rank}: it was never started.")
        spec = ProcessSpec(self._setup(rank), self._worker_fn, tuple(worker_args))
        self._supervisor.restart(spec, delay)

    def stop_worker(self, rank: int, why: str) -> None:
        """End the worker of one rank with SIGTERM, then SIGKILL; `why` is the recorded reason.

        The call does not wait for the end of the worker, whose state becomes ``stopped``. An ended
        worker is ignored.
        """
        if self._supervisor is not None:
            self._supervisor.stop_one(rank, why)

    def answer_worker(self, rank: int, payload: object) -> None:
        """Send the answer to a worker that called ``results_queue.ask()``; the call does not wait.

        `WorkerStatus.asked` counts the questions of a worker. An ended worker is ignored.

        Raises
        ------
        ValueError
            If the pickled `payload` has more than 64 KiB.
        """
        if self._supervisor is not None:
            self._supervisor.answer(rank, payload)

    def wait_for_change(self, timeout: float | None = None) -> None:
        """Wait until a worker changes its state, asks or reports, at most `timeout` seconds.

        Changes since the last call count.

        Raises
        ------
        WorkerError
            If the supervisor thread failed; all workers were killed.
        """
        if self._supervisor is not None:
            self._changes = self._supervisor.wait_for_change(self._changes, timeout)

    def wait_for_completion(self, timeout: float | None = None) -> dict[int, bool]:
        """Wait until all workers have ended, at most `timeout` seconds in total.

        Returns
        -------
        For each rank, whether its worker succeeded; False if it is still running. The reasons of
        failures are in `statuses`.
        """
        if self._supervisor is None:
            return {}
        self._supervisor.wait(timeout)
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

        Raises
        ------
        WorkerError
            If a process survives SIGKILL: it is stuck in the kernel. Also if the supervisor thread
            does not end in time.
        """
        if self._supervisor is not None:
            error = sys.exception()
            interrupted = isinstance(error, StopRequested | KeyboardInterrupt)
            why = f"stopped by {str(error) or 'SIGINT'}" if interrupted else "stopped with the run"
            self._supervisor.stop(why)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.terminate_all()

    def _setup(self, rank: int) -> Setup:
        variables = thread_variables(self._threads, os.environ)
        environment = self.devices[rank].environment | variables
        log = RunDirectory(self.output_dir.absolute()).log(rank) if self._logs else None
        return Setup(rank, self.world_size, os.getpid(), environment, log)

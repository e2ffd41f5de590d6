"""SPMD over devices: one independent process per rank."""

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
from virnucpro.runtime.rank_supervisor import Order, RankSupervisor
from virnucpro.runtime.results import ResultsQueue
from virnucpro.runtime.signals import StopRequested
from virnucpro.runtime.status import WorkerStatus
from virnucpro.runtime.watchdog import NEVER, Deadlines

__all__ = ["GPUProcessCoordinator"]


class GPUProcessCoordinator:
    """Runs one function on every device, in one process each, and records how each ends.

    A worker that raises, exits, is killed or hangs does not affect the others; its status has the
    reason at once. Use it as a context manager: all workers end with the block.

    Parameters
    ----------
    world_size
        Number of workers.
    output_dir
        Folder of the run; the workers' output is in its ``logs/rank-0000.log`` and so on.
    devices
        Rank r gets the r-th one; see `virnucpro.runtime.devices.devices_of_ranks`.
    threads
        Threads of a worker's numeric libraries; None for the libraries' default.
    logs
        Whether the workers' standard output and error go to their logs instead of the parent's.
    deadlines
        Maximum times without progress; a worker that exceeds one is ended and has failed.

    Attributes
    ----------
    ctx
        The multiprocessing context: spawn.
    devices
        The device of each rank.
    results_queue
        The workers' reports, which remain available after the workers' end.

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

        The worker's `results_queue` has ``put(payload)`` for results of any size, and
        ``progress(done, total)``, which updates `statuses`. The function's module is imported in
        the worker, after the device mask is set.

        Raises
        ------
        UsageError
            If workers were spawned before, or the function or its arguments cannot be pickled. No
            worker is running then.
        OSError
            If a log cannot be created, or the system refuses a process.
        """
        if self._supervisor is not None:
            raise UsageError("the workers were spawned already: use a new coordinator for others.")
        if self._logs:
            RunDirectory(self.output_dir).logs.mkdir(parents=True, exist_ok=True)
        supervisor = RankSupervisor(
            [
                Order(self._setup(rank), worker_fn, tuple(worker_args))
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
        """Restart the worker of an ended rank, `delay` seconds from now.

        It runs the function of `spawn_workers`, with new arguments. Before its start, its state is
        ``waiting``.

        Raises
        ------
        UsageError
            If that rank's worker has not ended, or was never spawned.
        """
        if self._supervisor is None or self._worker_fn is None or rank not in self.statuses:
            raise UsageError(f"worker {rank} was never spawned: it cannot be restarted.")
        order = Order(self._setup(rank), self._worker_fn, tuple(worker_args))
        self._supervisor.restart(order, delay)

    def stop_worker(self, rank: int, why: str) -> None:
        """End one rank's worker by SIGTERM, then SIGKILL, because it is no longer needed.

        Returns at once; its state becomes ``stopped``. Does nothing if it has ended.
        """
        if self._supervisor is not None:
            self._supervisor.stop_one(rank, why)

    def wait_for_change(self, timeout: float | None = None) -> None:
        """Wait until a worker has changed its state since the last call, or for `timeout` seconds.

        Raises
        ------
        WorkerError
            If the supervision itself failed; the workers were killed.
        """
        if self._supervisor is not None:
            self._changes = self._supervisor.wait_for_change(self._changes, timeout)

    def wait_for_completion(self, timeout: float | None = None) -> dict[int, bool]:
        """Wait until every worker has ended, or for `timeout` seconds in all.

        Returns
        -------
        Whether each rank succeeded; False for a running one. See `statuses` for reasons.
        """
        if self._supervisor is None:
            return {}
        self._supervisor.wait(timeout)
        return {rank: status.succeeded for rank, status in self.statuses.items()}

    def collect_results(self) -> list[Any]:
        """Take all reports that have arrived, in order of arrival.

        Raises
        ------
        WorkerError
            If a report cannot be unpickled; a further call returns the others.
        """
        return self.results_queue.take_all()

    def terminate_all(self) -> None:
        """End all workers by SIGTERM, then SIGKILL; return when their ends are recorded.

        Raises
        ------
        WorkerError
            If a process survives SIGKILL: it is stuck in the kernel.
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

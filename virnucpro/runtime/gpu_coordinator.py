"""SPMD over devices: one independent process a rank, none of which can take another down."""

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from virnucpro.errors import UsageError
from virnucpro.run_dir import RunDirectory
from virnucpro.runtime.child import Setup, WorkerFunction
from virnucpro.runtime.devices import Device, devices_of_ranks
from virnucpro.runtime.process import SPAWN, SpawnContext, SpawnProcess
from virnucpro.runtime.rank_supervisor import Order, RankSupervisor
from virnucpro.runtime.results import ResultsQueue
from virnucpro.runtime.signals import StopRequested
from virnucpro.runtime.status import WorkerStatus
from virnucpro.runtime.threads import thread_variables
from virnucpro.runtime.watchdog import NEVER, Deadlines

__all__ = ["GPUProcessCoordinator"]


class GPUProcessCoordinator:
    """Runs one function on every device at once, in a process each, and follows each to its end.

    A worker that raises, exits, is killed or hangs leaves the others alone; its end is known at
    once, with the reason. Use it as a context manager: no worker outlives the block.

    Parameters
    ----------
    world_size
        Number of workers.
    output_dir
        Folder of the run; the workers' output goes to ``logs/rank-0000.log`` and so on in it.
    devices
        What rank r gets the r-th of; see `virnucpro.runtime.devices.devices_of_ranks`.
    threads
        Threads that the numeric libraries of a worker may use; None leaves it to them.
    logs
        Whether the workers' standard output and error go to their logs, or where the parent's go.
    deadlines
        Longest times without progress: a worker that exceeds one is ended, and has failed.

    Attributes
    ----------
    ctx
        The multiprocessing context: spawn.
    devices
        The device of each rank.
    results_queue
        What the workers put. Reports stay readable after the workers ended.

    Raises
    ------
    UsageError
        When `world_size` is no positive number, or `devices` holds something else than devices.
    DeviceError
        When there are fewer devices than ranks.

    Notes
    -----
    The workers are spawned: a script that uses a coordinator needs the
    ``if __name__ == "__main__":`` guard, and worker functions stand at the top level of a module.
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
        """The process of each rank, the last one where it was started again."""
        return {} if self._supervisor is None else self._supervisor.processes

    @property
    def statuses(self) -> dict[int, WorkerStatus]:
        """What is known of each rank now; empty before `spawn_workers`."""
        return {} if self._supervisor is None else self._supervisor.statuses

    def spawn_workers(self, worker_fn: WorkerFunction, worker_args: tuple[Any, ...] = ()) -> None:
        """Start ``worker_fn(rank, world_size, results_queue, *worker_args)`` on every rank.

        The worker's `results_queue` has ``put(payload)`` for results of any size and
        ``progress(done, total)``, which shows in `statuses`. The function's module is imported in
        the worker, after the device mask is set.

        Raises
        ------
        UsageError
            When workers were spawned before, or the function or its arguments cannot be pickled. No
            worker is left running then.
        OSError
            When a log cannot be made, or the system refuses a process.
        """
        if self._supervisor is not None:
            raise UsageError("the workers were spawned already; use another coordinator for more.")
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
        """Start the worker of a rank that has ended anew, `delay` seconds from now.

        It is the function that `spawn_workers` got, with arguments of its own. Until it starts its
        state is ``waiting``.

        Raises
        ------
        UsageError
            When that rank's worker lives, or was never spawned.
        """
        if self._supervisor is None or self._worker_fn is None or rank not in self.statuses:
            raise UsageError(f"worker {rank} was never spawned: there is nothing to start again.")
        order = Order(self._setup(rank), self._worker_fn, tuple(worker_args))
        self._supervisor.start_again(order, delay)

    def stop_worker(self, rank: int, why: str) -> None:
        """End one rank's worker, at last by force, because it is not needed any more.

        Returns at once; its state becomes ``stopped``. One that has ended is left alone.
        """
        if self._supervisor is not None:
            self._supervisor.stop_one(rank, why)

    def wait_for_change(self, timeout: float | None = None) -> None:
        """Wait until a worker has come into another state since the last call, or for `timeout` s.

        Raises
        ------
        WorkerError
            When the supervision itself broke down; the workers were killed.
        """
        if self._supervisor is not None:
            self._changes = self._supervisor.wait_for_change(self._changes, timeout)

    def wait_for_completion(self, timeout: float | None = None) -> dict[int, bool]:
        """Wait until every worker has ended, or for `timeout` seconds in all.

        Returns
        -------
        For each rank whether it succeeded; False for one that is still at work. See `statuses` for
        reasons.
        """
        if self._supervisor is None:
            return {}
        self._supervisor.wait(timeout)
        return {rank: status.succeeded for rank, status in self.statuses.items()}

    def collect_results(self) -> list[Any]:
        """Take all that the workers have put and nobody has taken, in the order of arrival.

        Raises
        ------
        WorkerError
            When a report cannot be unpickled here; the next call returns the others.
        """
        return self.results_queue.take_all()

    def terminate_all(self) -> None:
        """End every worker that lives, at last by force. Their deaths are known on return.

        Raises
        ------
        WorkerError
            When a process outlives even SIGKILL, stuck in the kernel.
        """
        if self._supervisor is not None:
            error = sys.exception()
            interrupted = isinstance(error, StopRequested | KeyboardInterrupt)
            why = f"stopped by {str(error) or 'SIGINT'}" if interrupted else "stopped with the run"
            self._supervisor.stop(why)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.terminate_all()

    def _setup(self, rank: int) -> Setup:
        variables = thread_variables(self._threads, os.environ)
        environment = self.devices[rank].environment | variables
        log = RunDirectory(self.output_dir.absolute()).log(rank) if self._logs else None
        return Setup(rank, self.world_size, os.getpid(), environment, log)

"""Compare the dispatcher with other process pools, in one run on one machine.

    python scripts/bench/dispatch.py [--tasks N] [--large N] [--repeat N] [--workers N] [NAME ...]

Peers that are not installed are omitted. Columns: ``first`` is the time to the first result with
one task per worker. The throughputs, of tasks of 1 ms and of results of 1 MB, are medians without
that time. ``ahead`` is the number of tasks taken from the generator but not yet returned to a slow
consumer. ``killed`` is the number of answers to 20 tasks of which one kills its worker, and how the
pool ends.
"""

import argparse
import math
import os
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from importlib.util import find_spec
from operator import length_hint
from pathlib import Path

from rich.console import Console

from virnucpro.dispatch import BaseWorker, Dispatcher
from virnucpro.dispatch.ui import RichDispatcher

MEGABYTE = b"x" * (1 << 20)
KILLED_LIMIT_S = 10
SLOW_TASKS = 20_000
BRIEF_S = 0.001
POISON = 7


def echo(task: int) -> int:
    """Return a small result."""
    return task


def brief(task: int) -> int:
    """Compute for a millisecond."""
    end = time.perf_counter() + BRIEF_S
    while time.perf_counter() < end:
        pass
    return task


def megabyte(task: int) -> bytes:
    """Return a large result, new for each task."""
    return task.to_bytes(8) + MEGABYTE


def poisoned(task: int) -> int:
    """Kill the worker in one task."""
    if task == POISON:
        os.kill(os.getpid(), signal.SIGKILL)
    return task


FUNCTIONS = {"echo": echo, "brief": brief, "megabyte": megabyte, "poisoned": poisoned}


class Caller(BaseWorker):
    """Calls one of the functions above."""

    def setup(self, gpu_id: int, seed: int, **kwargs: object) -> None:  # noqa: ARG002 - the contract
        """Look up the function."""
        self.process = FUNCTIONS[kwargs["name"]]  # type: ignore[method-assign, index]

    def process(self, data: int) -> object:
        """Fail until `setup` has selected a function."""
        raise NotImplementedError(data)


Engine = Callable[[str, Iterable[int], int, Callable[[object], None]], None]


def ours(name: str, tasks: Iterable[int], workers: int, consume: Callable[[object], None]) -> None:
    """Run the dispatcher."""
    Dispatcher(Caller, range(workers), queue_size=2048).run(
        tasks, lambda _task, result, _worker: consume(result), name=name
    )


def dashboard(
    name: str, tasks: Iterable[int], workers: int, consume: Callable[[object], None]
) -> None:
    """Run the dispatcher with its live table, on a discarded terminal."""
    with Path(os.devnull).open("w") as nowhere:
        console = Console(file=nowhere, force_terminal=True, width=120)
        RichDispatcher(Caller, range(workers), 2048, refresh_rate=4.0, console=console).run(
            tasks, lambda _task, result, _worker: consume(result), name=name
        )


def executor(
    name: str, tasks: Iterable[int], workers: int, consume: Callable[[object], None]
) -> None:
    """Run ProcessPoolExecutor.map, the faster way to use it."""
    from concurrent.futures import ProcessPoolExecutor  # noqa: PLC0415 - one engine a process
    from multiprocessing import get_context  # noqa: PLC0415 - one engine a process

    with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool:
        for result in pool.map(FUNCTIONS[name], tasks):
            consume(result)


def pool(name: str, tasks: Iterable[int], workers: int, consume: Callable[[object], None]) -> None:
    """Run multiprocessing.Pool.imap_unordered."""
    from multiprocessing import get_context  # noqa: PLC0415 - one engine a process

    with get_context("spawn").Pool(workers) as processes:
        for result in processes.imap_unordered(FUNCTIONS[name], tasks):
            consume(result)


def mpire(name: str, tasks: Iterable[int], workers: int, consume: Callable[[object], None]) -> None:
    """Run mpire."""
    from mpire import WorkerPool  # noqa: PLC0415 - may be missing

    with WorkerPool(workers, start_method="spawn") as processes:
        found = processes.imap_unordered(
            FUNCTIONS[name],
            tasks,
            iterable_len=length_hint(tasks, SLOW_TASKS),
            chunk_size=1,
        )
        for result in found:
            consume(result)


def pebble(
    name: str, tasks: Iterable[int], workers: int, consume: Callable[[object], None]
) -> None:
    """Run pebble."""
    from multiprocessing import get_context  # noqa: PLC0415 - one engine a process

    from pebble import ProcessPool  # noqa: PLC0415 - may be missing

    with ProcessPool(workers, context=get_context("spawn")) as processes:
        results = processes.map(FUNCTIONS[name], tasks).result()
        for result in results:
            consume(result)


def joblib(
    name: str, tasks: Iterable[int], workers: int, consume: Callable[[object], None]
) -> None:
    """Run joblib on loky, with automatic batches."""
    from joblib import Parallel, delayed  # noqa: PLC0415 - may be missing

    calls = (delayed(FUNCTIONS[name])(task) for task in tasks)
    for result in Parallel(workers, return_as="generator_unordered")(calls):
        consume(result)


def ray(name: str, tasks: Iterable[int], workers: int, consume: Callable[[object], None]) -> None:
    """Run Ray's pool."""
    import ray  # noqa: PLC0415 - may be missing
    from ray.util.multiprocessing import Pool  # noqa: PLC0415 - may be missing

    ray.init(num_cpus=workers, include_dashboard=False, log_to_driver=False, logging_level="ERROR")
    with Pool(workers) as processes:
        for result in processes.imap_unordered(FUNCTIONS[name], tasks):
            consume(result)
    ray.shutdown()


def dask(name: str, tasks: Iterable[int], workers: int, consume: Callable[[object], None]) -> None:
    """Run dask.distributed, on this machine."""
    from distributed import Client, as_completed  # noqa: PLC0415 - may be missing

    with Client(n_workers=workers, threads_per_worker=1, dashboard_address=None) as client:
        futures = client.map(FUNCTIONS[name], list(tasks), pure=False)
        for _, result in as_completed(futures, with_results=True):
            consume(result)


ENGINES: dict[str, Engine] = {
    "virnucpro": ours,
    "virnucpro, with its table": dashboard,
    "ProcessPoolExecutor": executor,
    "Pool": pool,
    "mpire": mpire,
    "pebble": pebble,
    "joblib": joblib,
    "ray": ray,
    "dask": dask,
}
PEERS = {"mpire": "mpire", "pebble": "pebble", "joblib": "joblib"} | {
    "ray": "ray",
    "dask": "distributed",
}
"""Modules of the optional engines."""


class Watch:
    """Counts results and tasks, and times them."""

    def __init__(self, pause: float = 0.0) -> None:
        self._pause = pause
        self.began = time.perf_counter()
        self.given = self.count = self.ahead = 0
        self.first = self.last = 0.0

    def tasks(self, count: int) -> Iterator[int]:
        """Yield tasks and record the lead over the results."""
        for task in range(count):
            self.given += 1
            self.ahead = max(self.ahead, self.given - self.count)
            yield task

    def consume(self, _result: object) -> None:
        """Take a result."""
        if not self.count:
            self.first = time.perf_counter() - self.began
        self.count += 1
        if self._pause:
            time.sleep(self._pause)

    def rate(self, start: float) -> float:
        """Return results per second without the first `start` seconds; NaN if none remain.

        With few tasks the start is all there is, and it takes a little longer or shorter each time.
        """
        left = self.last - start
        return self.count / left if left > start / 10 else math.nan


def measure(engine: Engine, name: str, count: int, workers: int, pause: float = 0.0) -> Watch:
    """Run one engine once."""
    watch = Watch(pause)
    engine(name, watch.tasks(count) if pause else iter(range(count)), workers, watch.consume)
    watch.last = time.perf_counter() - watch.began
    return watch


def killed(engine: str) -> str:
    """Count the answers to 20 tasks of which one kills its worker, in another process."""
    command = [sys.executable, __file__, "--killed", engine]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=KILLED_LIMIT_S, check=False
        )
    except subprocess.TimeoutExpired as late:
        return f"{(late.stdout or b'').count(b'answered')}, hangs"
    answered = done.stdout.count("answered")
    return f"{answered}" if done.returncode == 0 else f"{answered}, raises"


def answer_poisoned(engine: str) -> None:
    """Print one line per answer to 20 tasks, one of which kills its worker."""

    def say(*_answer: object) -> None:
        print("answered", flush=True)

    if engine.startswith("virnucpro"):
        Dispatcher(Caller, [0, 1]).run(
            range(20), say, on_error=say, on_fault=lambda _: None, name="poisoned"
        )
    else:
        ENGINES[engine]("poisoned", range(20), 2, say)


def report(engine: str, options: argparse.Namespace) -> None:
    """Print one engine's line."""
    run, workers, repeat = ENGINES[engine], options.workers, range(options.repeat)
    start = statistics.median(measure(run, "echo", workers, workers).first for _ in repeat)
    short = [measure(run, "brief", options.tasks, workers).rate(start) for _ in repeat]
    large = [measure(run, "megabyte", options.large, workers).rate(start) for _ in repeat]
    ahead = measure(run, "echo", SLOW_TASKS, workers, pause=1e-4).ahead
    print(
        f"| {engine} | {start:.2f} s | {statistics.median(short):,.0f} "
        f"| {statistics.median(large):,.0f} | {ahead:,} | {killed(engine)} |",
        flush=True,
    )


def main() -> None:
    """Measure the selected engines."""
    parser = argparse.ArgumentParser(description="Compare the dispatcher with other pools.")
    parser.add_argument("names", nargs="*", help=f"engines: {', '.join(ENGINES)}; default: all")
    parser.add_argument("--tasks", type=int, default=4_000, help="number of tasks of 1 ms")
    parser.add_argument("--large", type=int, default=2_000, help="number of results of 1 MB")
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--one", help=argparse.SUPPRESS)
    parser.add_argument("--killed", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.killed:
        answer_poisoned(options.killed)
        return
    if options.one:
        report(options.one, options)
        return
    print("| engine | first | 1 ms tasks/s | 1 MB results/s | ahead | killed: of 20 |")
    print("|---|---|---|---|---|---|", flush=True)
    for name in options.names or ENGINES:
        if name not in PEERS or find_spec(PEERS[name]) is not None:
            # One process each: no engine inherits another's memory.
            subprocess.run([sys.executable, __file__, *sys.argv[1:], "--one", name], check=False)


if __name__ == "__main__":
    main()

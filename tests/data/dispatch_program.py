"""A program with a dispatcher; the tests start it with a function's name, and may kill it."""

import signal
import sys
import time
from pathlib import Path

from dispatch_workers import CleanupTells, Worker

from virnucpro.dispatch import BaseWorker, Dispatcher


class OfMain(BaseWorker):
    """A worker class in the main program."""

    def setup(self, gpu_id, seed, factor=1):
        self.gpu_id, self.seed, self.factor = gpu_id, seed, factor

    def process(self, data):
        return data * self.factor


pids = set()


def announce(task_id, result, worker_id):
    """Print the process ids of the workers, each once."""
    if result[2] not in pids:
        pids.add(result[2])
        print(result[2], flush=True)


def busy(task=("sleep", 60)):
    """Yield tasks until both workers have run one, then long ones."""
    while len(pids) < 2:
        yield ("whoami",)
    while True:
        yield task


def wait(_folder):
    Dispatcher(Worker, [0, 1]).run(busy(), announce)


def wait_deaf(_folder):
    Dispatcher(Worker, [0, 1]).run(busy(("hang_deaf",)), announce)


def interrupt(folder):
    before = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)
    try:
        Dispatcher(CleanupTells, [0, 1]).run(busy(), announce, folder=folder)
    except KeyboardInterrupt:
        assert before == (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM))
        print("interrupted", *sorted(path.name for path in Path(folder).iterdir()), flush=True)


def half_a_map(_folder):
    """Read one result of a map, and keep the map until the program ends."""
    global results  # noqa: PLW0603
    results = Dispatcher(Worker, [0]).map(range(10**9))
    print(next(results), flush=True)


def daemon_thread(_folder):
    """Exit while a run is active in a daemon thread."""
    import threading

    threading.Thread(target=wait, args=("",), daemon=True).start()
    time.sleep(1.5)


def of_main(_folder):
    Dispatcher(OfMain, [0]).run(range(3), lambda _, result, __: print(result), factor=7)


if __name__ == "__main__":
    globals()[sys.argv[1]](sys.argv[2])

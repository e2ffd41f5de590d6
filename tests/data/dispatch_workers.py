"""Workers for the tests of the dispatcher; the module imports nothing heavy."""

import contextlib
import ctypes
import itertools
import os
import signal
import threading
import time
from multiprocessing import parent_process
from pathlib import Path

from virnucpro.dispatch import BaseWorker, WorkerUnusable
from virnucpro.runtime.messages import WorkerChannel


class Worker(BaseWorker):
    """Calls the method that a task names, with arguments; returns any other task unchanged."""

    def setup(self, gpu_id, seed, **keywords):
        self.gpu_id, self.seed, self.keywords = gpu_id, seed, keywords

    def process(self, data):
        if isinstance(data, tuple):
            return getattr(self, data[0])(*data[1:])
        return data

    def whoami(self):
        return self.gpu_id, self.seed, os.getpid(), self.keywords

    def environment(self, name):
        return os.environ.get(name)

    def sleep(self, seconds):
        time.sleep(seconds)
        return seconds

    def raise_(self, error):
        raise error

    def kill(self, signum=signal.SIGKILL):
        os.kill(os.getpid(), signum)
        time.sleep(60)

    def warned(self):
        for signum in (signal.SIGALRM, signal.SIGUSR2, signal.SIGXCPU):
            os.kill(os.getpid(), signum)
        return "not late"

    def exit(self, code):
        raise SystemExit(code)

    def unusable_once(self, path):
        """Report a lost device in the first attempt only."""
        if Path(path).exists():
            return os.getpid()
        Path(path).write_text(str(os.getpid()))
        raise WorkerUnusable("the device is lost")

    def unusable(self):
        raise WorkerUnusable("the device is lost for good")

    def hard_exit(self, code):
        os._exit(code)

    def segfault(self):
        ctypes.string_at(0)

    def wait_in_c(self, seconds):
        """Wait in C with the interpreter's lock, until a signal comes."""
        ctypes.PyDLL(None).sleep(seconds)

    def hang_in_c(self):
        """Wait in C for ever with the interpreter's lock."""
        mutex = ctypes.create_string_buffer(64)
        for _ in range(2):
            ctypes.PyDLL(None).pthread_mutex_lock(mutex)

    def hang_deaf(self):
        while True:
            with contextlib.suppress(BaseException):
                time.sleep(60)

    def sleep_on(self):
        time.sleep(1000)

    def loop_on(self):
        """Loop in C for ever with the interpreter's lock."""
        sum(itertools.repeat(0))

    def stop(self):
        os.kill(os.getpid(), signal.SIGSTOP)

    def sleep_on_once(self, path):
        """Hang in the first attempt only."""
        if not Path(path).exists():
            Path(path).touch()
            self.sleep_on()
        return "second attempt"

    def slowly(self, steps, seconds):
        for _ in range(steps):
            time.sleep(seconds)
            self.progressed()
        return steps

    def silently(self, steps, seconds):
        for _ in range(steps):
            time.sleep(seconds)

    def slowly_in_a_thread(self, steps, seconds):
        thread = threading.Thread(target=self.slowly, args=(steps, seconds))
        thread.start()
        thread.join()
        return steps

    def leave_thread(self):
        threading.Thread(target=time.sleep, args=(600,)).start()

    def swallow(self):
        try:
            time.sleep(60)
        except BaseException:  # noqa: BLE001 - the tested case
            return "swallowed"

    def lambda_(self):
        return lambda: None

    def evil_pickle(self):
        return KillsInPickling()

    def only_here(self):
        return OnlyInWorkers()

    def pickles_as_error(self):
        return RaisesInPickling()

    def big(self, size, byte=1):
        return bytes([byte]) * size

    def stop_on_the_way(self, size):
        """Stop this process when half of the result is sent."""
        write = WorkerChannel._write

        def write_half(outbox, part):
            write(outbox, part[: len(part) // 2])
            if len(part) > size:
                os.kill(os.getpid(), signal.SIGSTOP)
            write(outbox, part[len(part) // 2 :])

        WorkerChannel._write = write_half
        return self.big(size)

    def slow_to_pickle(self, seconds):
        time.sleep(seconds)
        return SlowToPickle(seconds)

    def length(self, data):
        return len(data)

    def nested(self, count):
        from virnucpro.dispatch import Dispatcher  # of a parent

        results = []
        Dispatcher(Worker, [0]).run(range(count), lambda _, result, __: results.append(result))
        return results

    def stdout(self):
        print("printed by a worker", flush=True)

    def forks(self):
        """Fork a process that keeps all descriptors open, then die."""
        if os.fork() == 0:
            time.sleep(3)
            os._exit(0)
        self.kill()

    def forks_and_returns_twice(self):
        return "child" if os.fork() == 0 else os.getpid()

    def copies_itself(self, note):
        """Fork in C, unknown to Python; write down the pid, as the copy may hang on a lock."""
        copy = ctypes.CDLL(None).fork()
        if copy:
            with Path(note).open("a") as stream:
                stream.write(f"{copy}\n")
        return copy >= 0

    def close_all(self):
        """Close all descriptors, so that the worker fails after the task."""
        os.closerange(3, 300)
        return "closed"


class ImpatientWorker(Worker):
    progress_timeout = 0.5


class SlowToPickle:
    def __init__(self, seconds):
        self.seconds = seconds

    def __reduce__(self):
        time.sleep(self.seconds)
        return float, (self.seconds,)


class OnlyInWorkers:
    def __reduce__(self):
        return _refuse_parent, ()


def _refuse_parent():
    if parent_process() is None:
        raise ImportError("not here")
    return OnlyInWorkers()


class KillsInPickling:
    def __reduce__(self):
        os.kill(os.getpid(), signal.SIGKILL)


class RaisesInPickling:
    def __reduce__(self):
        raise OSError("no pickle for you")


class KillsAndIsPickledOnce:
    """A task that kills its worker and cannot be pickled twice."""

    sent = 0

    def __reduce__(self):
        self.sent += 1
        if self.sent > 1:
            raise OSError("no second time")
        return tuple, (["kill"],)


class OnlyInParent:
    """A task that no worker can unpickle."""

    def __reduce__(self):
        return _refuse_worker, ()


def _refuse_worker():
    raise ImportError("not there")


class SetupRaises(Worker):
    def setup(self, gpu_id, seed, **keywords):
        super().setup(gpu_id, seed, **keywords)
        if gpu_id in keywords["bad"]:
            self.process(keywords["how"])


class KilledInSetup(Worker):
    """Is killed in its first setups, as many times as `keywords` say."""

    def setup(self, gpu_id, seed, **keywords):
        super().setup(gpu_id, seed, **keywords)
        marks = Path(keywords["folder"])
        if len(list(marks.glob(f"{gpu_id}-*"))) < keywords["times"].get(gpu_id, 0):
            (marks / f"{gpu_id}-{os.getpid()}").touch()
            self.kill()


class DiesAfterSetup(Worker):
    """Worker 1 dies while idle, after every setup."""

    def setup(self, gpu_id, seed, **keywords):
        super().setup(gpu_id, seed, **keywords)
        if gpu_id == 1:
            threading.Timer(0.05, os.kill, (os.getpid(), signal.SIGKILL)).start()


class DiesWhenSetUp(Worker):
    """Dies when it reads its first task."""

    def setup(self, gpu_id, seed, **keywords):
        super().setup(gpu_id, seed, **keywords)
        receive = WorkerChannel.receive

        def die_instead(channel):
            receive(channel)
            self.kill()

        WorkerChannel.receive = die_instead


class CleanupFails(Worker):
    def cleanup(self):
        self.process(self.keywords["how"])


class CleanupTells(Worker):
    def cleanup(self):
        Path(self.keywords["folder"], str(self.gpu_id)).touch()


class Reuses(BaseWorker):
    """Returns the same array for every task, with other values."""

    def setup(self, gpu_id, seed, **keywords):
        import numpy as np

        self.gpu_id, self.seed, self.keywords = gpu_id, seed, keywords
        self.array = np.zeros(50_000)

    def process(self, data):
        self.array[:] = data.sum() if hasattr(data, "sum") else data
        return {"array": self.array, "number": data if isinstance(data, int) else -1}

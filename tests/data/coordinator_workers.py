"""Worker functions for the tests of the coordinator."""

import atexit
import ctypes
import os
import pickle
import signal
import sys
import threading
import time
from multiprocessing import parent_process
from pathlib import Path

from virnucpro.runtime.messages import Report, encode


def echo(rank, world_size, results_queue, *args):
    results_queue.put(
        {
            "rank": rank,
            "world_size": world_size,
            "args": args,
            "pid": os.getpid(),
            "mask": os.environ.get("CUDA_VISIBLE_DEVICES"),
            "threads": (os.environ.get("OMP_NUM_THREADS"), os.environ.get("MKL_NUM_THREADS")),
            "wait": os.environ.get("OMP_WAIT_POLICY"),
        }
    )


def leave_a_note(rank, world_size, results_queue, folder):
    """Register an exit handler and start a thread that ends later."""
    atexit.register((Path(folder) / "handler").touch)
    threading.Timer(0.3, (Path(folder) / "thread").touch).start()
    print("half a line", end="")


def succeed_or_fail(rank, world_size, results_queue, failing_rank):
    if rank == failing_rank:
        raise ValueError(f"rank {rank} was told to fail")


def touch_and_wait(rank, world_size, results_queue, folder, failing=()):
    """Report the rank, then wait for the file ``go``."""
    results_queue.put(rank)
    if rank in failing:
        os.kill(os.getpid(), signal.SIGKILL)
    while not (Path(folder) / "go").exists():
        time.sleep(0.01)


def meet_an_unknown_instruction(rank, world_size, results_queue, *args):
    results_queue.mark((0,))
    os.kill(os.getpid(), signal.SIGILL)


def hang(rank, world_size, results_queue):
    results_queue.put(os.getpid())
    time.sleep(600)


def hang_in_c(rank, world_size, results_queue):
    """Wait in C for ever with the interpreter's lock; no Python handler can run."""
    results_queue.put(os.getpid())
    mutex = ctypes.create_string_buffer(64)
    for _ in range(2):
        ctypes.PyDLL(None).pthread_mutex_lock(mutex)


def hang_deaf(rank, world_size, results_queue):
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    hang(rank, world_size, results_queue)


def hang_in_each_way(rank, world_size, results_queue):
    (hang, hang_in_c, hang_deaf)[rank](rank, world_size, results_queue)


def hang_until_asked(rank, world_size, results_queue):
    """Raise SystemExit on SIGTERM."""

    def stop(signum, frame):
        raise SystemExit(128 + signum)

    signal.signal(signal.SIGTERM, stop)
    hang(rank, world_size, results_queue)


def leave_thread(rank, world_size, results_queue):
    """Return, but start a thread that keeps the process alive."""
    threading.Thread(target=time.sleep, args=(600,)).start()
    results_queue.put(rank)


def exit_with(rank, world_size, results_queue, code):
    sys.exit(code)


def hard_exit(rank, world_size, results_queue, code):
    os._exit(code)


def kill_self(rank, world_size, results_queue, signum):
    os.kill(os.getpid(), signum)
    time.sleep(600)


def segfault(rank, world_size, results_queue):
    ctypes.string_at(0)


def crash_while_exiting(rank, world_size, results_queue):
    import atexit
    from multiprocessing import util

    atexit.register(os.abort)
    util.Finalize(None, os.abort, exitpriority=1)


class UnfriendlyError(Exception):
    def __str__(self):
        raise RuntimeError("no text for you")


def raise_unfriendly(rank, world_size, results_queue):
    raise UnfriendlyError


def raise_this(rank, world_size, results_queue, kind):
    raise kind


def many_reports(rank, world_size, results_queue, count, size):
    for number in range(count):
        results_queue.put((rank, number, bytes([rank]) * size))


def put_for_ever(rank, world_size, results_queue, size):
    while True:
        results_queue.put(b"x" * size)


def half_a_report(rank, world_size, results_queue, size, last):
    """Send half of a message, then raise a signal that kills or stops this process."""
    results_queue.put("whole")
    header, body = encode(Report(b"x" * size))
    for part in (header, body[: size // 2]):
        results_queue._write(part)
    os.kill(os.getpid(), last)
    time.sleep(600)


def interrupted_report(rank, world_size, results_queue):
    """Raise an exception from a signal handler in the middle of a message."""

    def stop(signum, frame):
        raise TimeoutError("the alarm went off")

    signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, 0.01, 0.01)
    try:
        while True:
            results_queue.put(b"x" * (1 << 22))
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


def foreign_bytes(rank, world_size, results_queue):
    os.write(results_queue._descriptor, b"hello, parent, this is no frame")
    time.sleep(600)


def put_unpicklable(rank, world_size, results_queue):
    try:
        results_queue.put(lambda: None)
    except (AttributeError, pickle.PicklingError) as error:  # the former before Python 3.14
        results_queue.put(str(error))


class OnlyInWorkers:
    """Can be pickled, but not unpickled in the parent."""

    def __reduce__(self):
        return _refuse_parent, ()


def _refuse_parent():
    if parent_process() is None:
        raise ImportError("not here")
    return OnlyInWorkers()


def put_unreadable(rank, world_size, results_queue):
    results_queue.put("before")
    results_queue.put(OnlyInWorkers())
    results_queue.put("after")


def count_up(rank, world_size, results_queue, total):
    for done in range(total):
        results_queue.progress(done, total + 1)


def write_output(rank, world_size, results_queue):
    print("out by print")
    print("err by print", file=sys.stderr)
    os.write(1, b"out from below\n")
    os.write(2, b"err from below\n")


def outlived_by_a_fork(rank, world_size, results_queue):
    """Fork a process that keeps all descriptors of this one open, then die."""
    grandchild = os.fork()
    if grandchild == 0:
        time.sleep(600)
        os._exit(0)
    results_queue.put(grandchild)
    os.kill(os.getpid(), signal.SIGKILL)


def set_event(rank, world_size, results_queue, event):
    event.set()


def descriptors_of_a_subprocess(rank, world_size, results_queue):
    import subprocess

    command = [sys.executable, "-c", "import os; print(os.listdir('/proc/self/fd'))"]
    listing = subprocess.run(command, capture_output=True, text=True, close_fds=False, check=True)
    results_queue.put((str(results_queue._descriptor), listing.stdout))


def put_from_threads(rank, world_size, results_queue, count, size):
    threads = [
        threading.Thread(target=many_reports, args=(number, world_size, results_queue, count, size))
        for number in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def print_much(rank, world_size, queue):
    for number in range(1000):
        print(f"line {number} on standard output")
        print(f"line {number} on standard error", file=sys.stderr)


def ask_for_numbers(rank, world_size, results_queue):
    """Report the answers of the parent until it answers None."""
    results_queue.mark((0, 0, 0, 1))
    results_queue.mark(())
    while (number := results_queue.ask()) is not None:
        results_queue.put((rank, number))


def return_what_comes(rank, world_size, results_queue):
    """Report the data of the parent until they end."""
    while data := results_queue.receive():
        results_queue.send(Report(data))

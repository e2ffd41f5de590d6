"""What runs in a worker's process around the worker's function.

The order matters: first the environment (the device mask), the signals and the log, then the
worker's function is unpickled, which imports its module. A CUDA query at import time therefore sees
this rank's devices alone. One thing comes earlier and cannot be helped: a spawned process imports
the parent's ``__main__`` before anything else. Keep the main script light.
"""

import atexit
import contextlib
import ctypes
import errno
import faulthandler
import os
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO, cast

from virnucpro.console import protect_standard_streams
from virnucpro.errors import VirnucproError
from virnucpro.runtime.messages import Failure, Finished, Started
from virnucpro.runtime.process import Connection, Delivery, wait_for_parent
from virnucpro.runtime.signals import STOPPING
from virnucpro.runtime.worker_channel import WorkerChannel

__all__ = ["STACKS_SIGNAL", "Setup", "WorkerFunction", "keep_freed_memory", "run_child"]

WorkerFunction = Callable[..., object]

STACKS_SIGNAL = signal.SIGUSR1
"""Makes a worker write what all its threads are doing into its log."""

_PR_SET_PDEATHSIG = 1  # linux/prctl.h

_APPEND = os.O_WRONLY | os.O_CREAT | os.O_APPEND

_MALLOC_OPTIONS = {-3: 32 << 20, -1: 1 << 30, -2: 16 << 20}
"""M_MMAP_THRESHOLD (its largest value), M_TRIM_THRESHOLD, M_TOP_PAD of malloc.h, in bytes."""

_PERMANENT = frozenset(
    {
        errno.EACCES,
        errno.EDQUOT,
        errno.EFBIG,
        errno.ENOENT,
        errno.ENOSPC,
        errno.ENOTDIR,
        errno.EPERM,
        errno.EROFS,
    }
)
"""Errors of the system that a new process meets again: somebody has to see to the machine first."""


@dataclass(frozen=True, slots=True)
class Setup:
    """What a child's process is told before its function is loaded: plain data.

    Attributes
    ----------
    rank, world_size
        The function's first two arguments.
    parent
        Process id of the parent.
    environment
        Variables to set: the device mask, numbers of threads.
    log
        File that takes standard output and standard error, or None to leave them where they are.
    """

    rank: int
    world_size: int
    parent: int
    environment: Mapping[str, str]
    log: Path | None


def run_child(connection: Connection, delivery: Delivery, setup: Setup) -> None:
    """Set the process up, call ``function(rank, world_size, outbox, *arguments)``, tell the end.

    Parameters
    ----------
    delivery
        Holds ``(function, arguments)``.

    Raises
    ------
    SystemExit
        With the exit code, when the function did not return: that of its own SystemExit, else 1.
    """
    os.environ.update(setup.environment)
    _follow_parent(setup.parent)
    _choose_signals()
    keep_freed_memory()
    os.set_inheritable(connection.fileno(), False)  # noqa: FBT003 - the signature of os.set_inheritable
    outbox = WorkerChannel(connection.fileno())
    codes: list[int] = []
    atexit.register(_leave, codes)  # as the first one, so that all others run before it
    codes.append(_run(outbox, delivery, setup))
    if codes[0] != 0:
        sys.exit(codes[0])


def _leave(codes: Sequence[int]) -> None:
    """End the process without taking the interpreter apart: with torch in it that is half a second.

    By then threads are joined and all other exit handlers have run.
    """
    if codes:
        for stream in (sys.stdout, sys.stderr):
            if stream is not None:
                with contextlib.suppress(OSError, ValueError):  # a full disk; closed already
                    stream.flush()
        os._exit(codes[0])


def _run(outbox: WorkerChannel, delivery: Delivery, setup: Setup) -> int:
    try:
        if setup.log is not None:
            _redirect(setup.log)
        protect_standard_streams(strict=False)
        faulthandler.enable()
        # Sent before a worker that hangs is ended: its log then shows where it hung.
        faulthandler.register(STACKS_SIGNAL, all_threads=True)
        outbox.send(Started())
        function, arguments = cast("tuple[WorkerFunction, tuple[object, ...]]", delivery.open())
        function(setup.rank, setup.world_size, outbox, *arguments)
    except SystemExit as error:
        if error.code is not None and error.code != 0:
            return _tell_failure(outbox, error)
    except BaseException as error:  # noqa: BLE001 - nothing is above this: the parent is told, and the exit code says it
        return _tell_failure(outbox, error)
    outbox.flush_progress()
    outbox.send(Finished())
    return 0


def _tell_failure(outbox: WorkerChannel, error: BaseException) -> int:
    """Send what happened, print it where the rank's log is, and return the exit code."""
    summary = traceback.TracebackException.from_exception(error)
    text = "".join(summary.format())
    outbox.flush_progress()
    outbox.send(Failure(type(error).__name__, _message(error), text, _is_permanent(error)))
    print(text, file=sys.stderr, end="", flush=True)
    return error.code if isinstance(error, SystemExit) and isinstance(error.code, int) else 1


def _is_permanent(error: BaseException) -> bool:
    """Tell an error that a new process would meet again from one that it might not."""
    if isinstance(error, OSError):
        return error.errno in _PERMANENT
    return isinstance(error, VirnucproError | ImportError)


def _message(error: BaseException) -> str:
    """Give an error's text and the notes that were added to it on its way up."""
    try:
        return "; ".join([str(error), *getattr(error, "__notes__", ())])
    except Exception:  # noqa: BLE001 - an exception's own __str__ may raise anything
        return "(its text could not be made)"


def _follow_parent(parent: int) -> None:
    """Die when the parent dies, however it dies.

    The kernel sends the signal when the thread that started this process ends. A parent that died
    before the request was made sends none: then this process has another parent by now.
    """
    if ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0) != 0:
        threading.Thread(
            target=_die_with_parent, name="virnucpro-parent-watch", daemon=True
        ).start()
    if os.getppid() != parent:
        os._exit(1)


def keep_freed_memory() -> None:
    """Keep freed memory for the next batch: the C library would give it back and ask again."""
    set_option = getattr(ctypes.CDLL(None), "mallopt", None)
    if set_option is not None:  # glibc: others have no such options
        for option, n_bytes in _MALLOC_OPTIONS.items():
            set_option(option, n_bytes)


def _die_with_parent() -> None:
    wait_for_parent()
    os._exit(1)


def _choose_signals() -> None:
    """Leave Ctrl-C to the parent, which passes it on as it sees fit; end on SIGTERM."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, STOPPING)


def _redirect(log: Path) -> None:
    """Append standard output and error to `log`, on the descriptors: C code writes there too."""
    descriptor = os.open(log, _APPEND, 0o666)
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:  # the parent was started with it closed
            stream.flush()
    os.dup2(descriptor, 1)
    os.dup2(descriptor, 2)
    os.close(descriptor)
    sys.stdout, sys.stderr = _line_writer(1), _line_writer(2)


def _line_writer(descriptor: int) -> TextIO:
    return os.fdopen(
        descriptor, "w", buffering=1, encoding="utf-8", errors="backslashreplace", closefd=False
    )

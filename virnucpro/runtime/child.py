"""Main function of a child process: setup, call of the worker function, report of its end.

The order of the steps matters. First, the environment (with CUDA_VISIBLE_DEVICES), the signals
and the log are set. Then the worker function is unpickled, which imports its module: a CUDA query
at import time sees only this rank's device. Only the parent's ``__main__`` is imported earlier, by
`multiprocessing`: keep imports out of the main script.
"""

import atexit
import contextlib
import ctypes
import errno
import faulthandler
import gc
import os
import signal
import sys
import traceback
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, TextIO, cast

from virnucpro.console import protect_standard_streams
from virnucpro.errors import VirnucproError
from virnucpro.runtime.messages import Failure, Finished, Started, WorkerChannel
from virnucpro.runtime.process import Connection, hide_safe_path, unseal
from virnucpro.runtime.signals import STOPPING, WARNINGS

WorkerFunction = Callable[..., object]

STACKS_SIGNAL = signal.SIGUSR1
"""Signal at which a worker writes the stack traces of all its threads to its log."""

_PR_SET_PDEATHSIG = 1  # linux/prctl.h

_APPEND = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_NONBLOCK
"""With O_NONBLOCK, opening a named pipe without a reader fails at once, with ENXIO."""

_MALLOC_OPTIONS = {-3: 32 << 20, -1: 1 << 30, -2: 16 << 20}
"""Options of malloc.h in bytes: M_MMAP_THRESHOLD (largest value), M_TRIM_THRESHOLD, M_TOP_PAD."""

_PERMANENT = frozenset(
    {
        errno.EACCES,
        errno.EDQUOT,
        errno.EFBIG,
        errno.ELOOP,
        errno.ENOENT,
        errno.ENOSPC,
        errno.ENOTDIR,
        errno.ENXIO,
        errno.EPERM,
        errno.EROFS,
    }
)
"""Error numbers for which a restart of the worker does not help."""


class Setup(NamedTuple):
    """Parameters of a child process, as plain data.

    The child applies them before it imports the module of the worker function.

    Attributes
    ----------
    rank, world_size
        The first two arguments of the worker function.
    parent
        Process id of the parent.
    environment
        Environment variables to set, such as CUDA_VISIBLE_DEVICES and numbers of threads.
    log
        File that receives standard output and standard error; None: no redirection.
    """

    rank: int
    world_size: int
    parent: int
    environment: Mapping[str, str]
    log: Path | None


def run_child(connection: Connection, sealed: int, setup: Setup) -> None:
    """Set up this process, call the worker function, and report its end to the parent.

    The call is ``function(rank, world_size, channel, *arguments)``. The function sends its results
    through the channel, a `WorkerChannel`.

    Parameters
    ----------
    sealed
        Descriptor of a memory file with the pickled ``(function, arguments)``; see
        `virnucpro.runtime.process.Sealed`.

    Raises
    ------
    SystemExit
        If the function failed. The exit code is 1, or the integer that the function passed to
        ``sys.exit``.
    """
    hide_safe_path()
    os.environ.update(setup.environment)
    _follow_parent(setup.parent)
    _choose_signals()
    keep_freed_memory()
    os.set_inheritable(connection.fileno(), False)  # noqa: FBT003 - the signature of os.set_inheritable
    channel = WorkerChannel(connection.fileno())
    codes: list[int] = []
    atexit.register(_leave, codes)  # registered first: runs after all others
    codes.append(_run(channel, sealed, setup))
    if codes[0] != 0:
        sys.exit(codes[0])


def _leave(codes: Sequence[int]) -> None:
    """End this process with the exit code in `codes`, without the shutdown of Python.

    The shutdown takes 0.5 s after an import of torch. Threads have ended and all other exit
    handlers have run before this call. If `codes` is empty, the function does nothing.
    """
    if codes:
        for stream in (sys.stdout, sys.stderr):
            if stream is not None:
                with contextlib.suppress(OSError, ValueError):  # a full disk; a closed stream
                    stream.flush()
        os._exit(codes[0])


def _run(channel: WorkerChannel, sealed: int, setup: Setup) -> int:
    try:
        if setup.log is not None:
            _redirect(setup.log)
        protect_standard_streams(strict=False)
        faulthandler.enable()
        # The parent sends it to a hung worker before the kill: the log then shows where it hung.
        faulthandler.register(STACKS_SIGNAL, all_threads=True)
        channel.send(Started())
        usual, rare = gc.get_threshold(), (50_000, 10, 10)
        gc.set_threshold(*rare)  # collections during the imports take a tenth of their time
        function, arguments = cast("tuple[WorkerFunction, tuple[object, ...]]", unseal(sealed))
        if gc.get_threshold() == rare:  # the module of the function may have set another one
            gc.set_threshold(*usual)
        function(setup.rank, setup.world_size, channel, *arguments)
    except SystemExit as error:
        if error.code is not None and error.code != 0:
            return _report_failure(channel, error)
    except BaseException as error:  # noqa: BLE001 - reported to the parent, and by the exit code
        return _report_failure(channel, error)
    channel.flush_progress()
    channel.send(Finished())
    return 0


def _report_failure(channel: WorkerChannel, error: BaseException) -> int:
    """Send an exception to the parent and to the log; return the exit code for this process."""
    summary = traceback.TracebackException.from_exception(error)
    text = "".join(summary.format())
    channel.flush_progress()
    channel.send(Failure(type(error).__name__, _message(error), text, _is_permanent(error)))
    print(text, file=sys.stderr, end="", flush=True)
    return error.code if isinstance(error, SystemExit) and isinstance(error.code, int) else 1


def _is_permanent(error: BaseException) -> bool:
    """Return whether an exception would occur again in a restarted worker."""
    if isinstance(error, OSError):
        return error.errno in _PERMANENT
    return isinstance(error, VirnucproError | ImportError)


def _message(error: BaseException) -> str:
    """Return the text of an exception with its notes."""
    try:
        return "; ".join([str(error), *getattr(error, "__notes__", ())])
    except Exception:  # noqa: BLE001 - an exception's own __str__ may raise anything
        return "(its text is not available)"


def _follow_parent(parent: int) -> None:
    """Make the kernel kill this process when its parent ends for any reason.

    The kernel sends SIGKILL when the thread that started this process ends. If the parent ended
    before this call, this process has another parent and exits here.
    """
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(1)


def keep_freed_memory() -> None:
    """Make the C library keep freed memory for later use instead of returning it to the system."""
    set_option = getattr(ctypes.CDLL(None), "mallopt", None)
    if set_option is not None:  # only glibc has these options
        for option, n_bytes in _MALLOC_OPTIONS.items():
            set_option(option, n_bytes)


def _choose_signals() -> None:
    """Ignore SIGINT and warnings, which the parent handles; let SIGTERM end the process."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    for signum in WARNINGS:  # not SIG_IGN, which programs that a worker starts would inherit
        signal.signal(signum, lambda _signum, _frame: None)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {*STOPPING, *WARNINGS})


def _redirect(log: Path) -> None:
    """Redirect standard output and error, also of C code, to the end of the file `log`.

    Raises
    ------
    OSError
        If the file cannot be opened, or is a symbolic link or a named pipe without a reader.
    """
    descriptor = os.open(log, _APPEND, 0o666)
    os.set_blocking(descriptor, True)
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:  # None if the parent started without it
            stream.flush()
    os.dup2(descriptor, 1)
    os.dup2(descriptor, 2)
    os.close(descriptor)
    sys.stdout, sys.stderr = _line_writer(1), _line_writer(2)


def _line_writer(descriptor: int) -> TextIO:
    return os.fdopen(
        descriptor, "w", buffering=1, encoding="utf-8", errors="backslashreplace", closefd=False
    )

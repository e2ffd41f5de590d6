"""One child process with its own pipe. No other file uses `multiprocessing` directly."""

import os
import pickle
import reprlib
import signal
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from multiprocessing import current_process, get_context, reduction, resource_tracker
from multiprocessing.connection import Connection as Connection
from multiprocessing.context import SpawnContext as SpawnContext
from multiprocessing.context import SpawnProcess as SpawnProcess

from virnucpro.errors import UsageError
from virnucpro.runtime.messages import UNGUARDED_CODE, Decoder, Message, frame
from virnucpro.runtime.signals import STOPPING, WARNINGS

SPAWN: SpawnContext = get_context("spawn")
"""Start method of child processes. Fork would copy the parent's locks and CUDA state."""

_READ_SIZE = 1 << 20
"""Maximum bytes per read of a pipe, so that one child does not delay the other children."""

_REAPED_ELSEWHERE_S = 0.5
"""Maximum wait in seconds for an exit code that another thread is collecting."""

_SAFE_PATH = "PYTHONSAFEPATH"
"""Variable with which Python starts without the working folder on ``sys.path``."""

_OURS = "virnucpro"
"""Value of `_SAFE_PATH` if the user did not set it: workers do not hand it on."""

_starting = threading.Lock()


class Sealed:
    """An object that a child process unpickles only after the setup of the child.

    Unpickling imports modules, so the child must set its environment first. The pickle is in a
    memory file, so the parent does not wait for the child to read it. The child receives the
    file's descriptor (an int) and passes it to `unseal`. The object may contain multiprocessing
    events, queues and locks.

    Parameters
    ----------
    content
        The object for the child. It must be picklable.
    """

    def __init__(self, content: object) -> None:
        self._content = content
        self._descriptor: int | None = None

    def __reduce__(self) -> tuple[Callable[[object], int], tuple[object]]:
        return HandedOver(self._written()).__reduce__()

    def close(self) -> None:
        """Close the parent's descriptor of the memory file."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def _written(self) -> int:
        """Return the descriptor of the memory file; the first call writes the pickle into it."""
        if self._descriptor is None:
            self._descriptor = os.memfd_create("virnucpro-sealed")
            try:
                with os.fdopen(self._descriptor, "wb", closefd=False) as stream:
                    reduction.dump(self._content, stream)
            except Exception as error:
                raise UsageError(
                    f"{reprlib.repr(self._content)} cannot be sent to a worker process: {error}. "
                    "Define the worker function and its arguments' classes at the top level of a "
                    "module that can be imported."
                ) from error
        return self._descriptor


def unseal(descriptor: int) -> object:
    """Unpickle and return the object of a `Sealed`, in the child; call this only once."""
    with os.fdopen(descriptor, "rb") as stream:
        stream.seek(0)
        return pickle.load(stream)  # noqa: S301 - written by this child's own parent


class HandedOver:
    """Passes a file descriptor of the parent to a child, as a part of a `Sealed` object.

    The child receives the number of its own copy of the descriptor, an int.

    Parameters
    ----------
    descriptor
        The file descriptor. The parent may close it after the start of the child.
    """

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def __reduce__(self) -> tuple[Callable[[object], int], tuple[object]]:
        return _taken_over, (reduction.DupFd(self._descriptor),)


def _taken_over(handle: object) -> int:
    descriptor: int = handle.detach()  # type: ignore[attr-defined]
    os.set_inheritable(descriptor, False)  # noqa: FBT003 - the signature of os.set_inheritable
    return descriptor


class Child:
    """A started process, the parent's end of its pipe, and a descriptor that reports its death.

    Not thread-safe. The kernel kills the child at the end of the thread that started it (see
    `virnucpro.runtime.child`).

    Parameters
    ----------
    name
        Name of the process.
    target
        Function that the child calls as ``target(connection, *arguments)``. Its module should
        have few imports.
    arguments
        Plain data, or `Sealed` objects. The child receives each `Sealed` object as an int.

    Raises
    ------
    UsageError
        If a `Sealed` object cannot be pickled, or the main script was read from standard input; no
        process was started.
    OSError
        If the system cannot create a process or a descriptor.

    Attributes
    ----------
    reads, writes
        Numbers of successful reads and writes of the pipe. A change is progress of the child.
    """

    def __init__(
        self,
        name: str,
        target: Callable[..., None],
        arguments: Sequence[object] = (),
    ) -> None:
        _require_spawnable()
        ours, theirs = SPAWN.Pipe(duplex=True)
        process = SPAWN.Process(target=target, name=name, args=(theirs, *arguments))
        try:
            with _without_working_folder():
                process.start()
        except BaseException:
            ours.close()
            raise
        finally:
            # With an open copy of the child's end, a read would not end at the child's death.
            theirs.close()
            for argument in arguments:
                if isinstance(argument, Sealed):
                    argument.close()
        os.set_blocking(ours.fileno(), False)
        self.process = process
        self.reads = self.writes = 0
        self._unsent: deque[memoryview] = deque()
        self._pipe = ours
        self._decoder = Decoder()
        self._pidfd = _pidfd(process)

    @property
    def sentinel(self) -> int:
        """A descriptor that becomes readable when the child ends."""
        return self.process.sentinel if self._pidfd is None else self._pidfd

    @property
    def pipe(self) -> Connection | None:
        """The parent's end of the pipe, or None if it is closed."""
        return None if self._pipe.closed else self._pipe

    @property
    def unfinished(self) -> int:
        """Number of received bytes of an incomplete message."""
        return self._decoder.unfinished

    def messages(self, *, dead: bool = False) -> Iterator[Message]:
        """Read the pipe once, or until it is empty if `dead` is true; yield the complete messages.

        This never blocks, even if a fork of the child has the other end of the pipe open.

        Raises
        ------
        WorkerError
            If the pipe contains invalid data.
        """
        while data := self._read():
            for message in self._decoder.feed(data):
                yield message
                if self._pipe.closed:
                    return
            if not dead:
                return

    def exit_code(self) -> int | None:
        """Return the exit code of a dead child; -N if the signal N killed it.

        Returns
        -------
        The exit code; None if other code of this program called ``waitpid`` for the child.
        """
        deadline = time.monotonic() + _REAPED_ELSEWHERE_S
        # Race: after a waitpid in another thread, multiprocessing sets the code a moment later.
        while self.process.exitcode is None and time.monotonic() < deadline:
            time.sleep(0.001)
        self.process.join(0)  # multiprocessing keeps a process, and its descriptors, until joined
        return self.process.exitcode

    def send(self, *parts: bytes | memoryview) -> bool:
        """Send data, joined from the given parts, without blocking; see `flush`."""
        self._unsent += frame(*parts)
        return self.flush()

    def flush(self) -> bool:
        """Write unsent data until the pipe is full; return whether none are left.

        Data for a dead child, or through a closed pipe, are discarded.
        """
        try:
            while self._unsent and not self._pipe.closed:
                part = self._unsent[0]
                written = os.write(self._pipe.fileno(), part)
                self.writes += 1
                if written < len(part):
                    self._unsent[0] = part[written:]
                else:
                    self._unsent.popleft()
        except BlockingIOError:
            return False
        except (BrokenPipeError, ConnectionResetError):  # its sentinel reports the child's death
            pass
        self._unsent.clear()
        return True

    def signal(self, signum: signal.Signals) -> None:
        """Send a signal to the child process if it is alive."""
        if self.process.pid is not None and self.process.exitcode is None:
            os.kill(self.process.pid, signum)

    def close_pipe(self) -> None:
        """Close the parent's end of the pipe; later sends in the child raise BrokenPipeError."""
        self._pipe.close()

    def close(self) -> None:
        """Close the pipe and the process descriptor. This does not end a running child."""
        self.close_pipe()
        if self._pidfd is not None:
            os.close(self._pidfd)
            self._pidfd = None

    def _read(self) -> bytes:
        if self._pipe.closed:
            return b""
        try:
            data = os.read(self._pipe.fileno(), _READ_SIZE)
        except BlockingIOError:
            return b""
        except ConnectionResetError:
            data = b""
        if data:
            self.reads += 1
        else:
            self._pipe.close()
        return data


def _require_spawnable() -> None:
    """Raise UsageError if this process may have no children, or if they cannot import its script.

    The main script of this process may have no file. A worker that still imports it ends here.
    """
    leave_unguarded_import()
    if current_process().daemon:
        raise UsageError(
            "this process is daemonic, such as a worker of a multiprocessing Pool, and may "
            'start no processes: compute in this process (devices="cpu"), or use a '
            "concurrent.futures.ProcessPoolExecutor in place of the Pool"
        )
    main = sys.modules["__main__"]
    if getattr(main, "__file__", None) == "<stdin>" and getattr(main, "__spec__", None) is None:
        raise UsageError(
            "worker processes cannot import a script from standard input: save it as a file. "
            "Without one, sequences can be classified and embedded by the encoders of bundles "
            'only, in this process (devices="cpu")'
        )


def leave_unguarded_import() -> None:
    """End this process if it is a new worker that still imports its parent's main script.

    Functions that start workers call this first. Without the main guard, each worker of a script
    would call them again. The exit code makes the parent report the missing guard.

    Raises
    ------
    SystemExit
        If this process imports a main script.
    """
    if getattr(current_process(), "_inheriting", False):
        sys.exit(UNGUARDED_CODE)


def _pidfd(process: SpawnProcess) -> int | None:
    """Return a descriptor of a child process (pidfd); None if the system cannot open it.

    The sentinel of multiprocessing is a pipe. A process that the child forked keeps this pipe
    open after the death of the child; a pidfd does not have this problem.
    """
    if process.pid is None:
        return None
    try:
        return os.pidfd_open(process.pid)
    except OSError:  # Linux before 5.3, a sandbox, or already collected by another thread
        return None


@contextmanager
def _without_working_folder() -> Iterator[None]:
    """Let a Python process that the block starts import its first modules from Python alone.

    Otherwise a file such as ``signal.py`` in the working folder replaces a standard module. A
    worker then takes the ``sys.path`` of this process, as `multiprocessing` has it.
    """
    with _starting:
        os.environ.setdefault(_SAFE_PATH, _OURS)
        try:
            yield
        finally:
            hide_safe_path()


def hide_safe_path() -> None:
    """Remove the variable of `_without_working_folder` from the environment of this process."""
    if os.environ.get(_SAFE_PATH) == _OURS:
        del os.environ[_SAFE_PATH]


@contextmanager
def interrupts_held() -> Iterator[None]:
    """Block stop signals in this thread during a `with` block that starts a child.

    The child inherits the blocked signals. Ctrl-C is sent to the whole process group and must not
    kill a child before it has set its signal handlers (`virnucpro.runtime.child`).
    """
    # A signal to the process group must not end multiprocessing's tracker, which ignores only two.
    kept = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGHUP, *WARNINGS})
    try:
        # If the tracker started later, with the first child, it would unblock the signals.
        with _without_working_folder():
            resource_tracker.ensure_running()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, kept)
    # Python runs signal handlers only in the main thread.
    main = threading.current_thread() is threading.main_thread()
    stopping = STOPPING if main else (signal.SIGINT,)
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {*stopping, *WARNINGS})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)

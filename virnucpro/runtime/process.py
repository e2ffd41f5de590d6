"""The only file that touches `multiprocessing`: one child process with its private pipe."""

import os
import pickle
import reprlib
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from multiprocessing import connection, get_context, parent_process, reduction, resource_tracker
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnContext, SpawnProcess

from virnucpro.errors import UsageError
from virnucpro.runtime.messages import Decoder, Message
from virnucpro.runtime.signals import STOPPING

__all__ = [
    "SPAWN",
    "Child",
    "Connection",
    "Delivery",
    "HandedOver",
    "Sealed",
    "SpawnContext",
    "SpawnProcess",
    "interrupts_held",
    "wait_for_parent",
]

SPAWN: SpawnContext = get_context("spawn")
"""Fork would copy the locks, threads and CUDA state of the parent."""

_READ_SIZE = 1 << 20
"""Bytes read from a pipe at a time: no child delays the others for long."""

_REAPED_ELSEWHERE_S = 0.5
"""Longest time in seconds that another thread, collecting an exit code, may take to note it."""


class Delivery:
    """In the child: what the parent sealed, still unopened.

    Parameters
    ----------
    descriptor
        Of the memory file with its bytes.
    """

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def open(self) -> object:
        """Unpickle the content, importing what it names. Once only."""
        with os.fdopen(self._descriptor, "rb") as stream:
            stream.seek(0)
            return pickle.load(stream)  # noqa: S301 - written by this child's own parent


class Sealed:
    """In the parent: an object that a child unpickles when it chooses, as a `Delivery`.

    Unpickling imports the modules that the content names, so a child first sets up its process. The
    bytes travel in a memory file: the parent never waits for a child to read them. What
    `multiprocessing` shares only by inheritance (events, queues, locks) may be part of the content.

    Parameters
    ----------
    content
        Any object that can be pickled.
    """

    def __init__(self, content: object) -> None:
        self._content = content
        self._descriptor: int | None = None

    def __reduce__(self) -> tuple[Callable[[object], Delivery], tuple[object]]:
        return _delivered, (reduction.DupFd(self._written()),)

    def close(self) -> None:
        """Free the parent's copy of the bytes."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def _written(self) -> int:
        """Give the descriptor of the bytes, which are made when they are first asked for."""
        if self._descriptor is None:
            self._descriptor = os.memfd_create("virnucpro-sealed")
            try:
                with os.fdopen(self._descriptor, "wb", closefd=False) as stream:
                    reduction.dump(self._content, stream)
            except Exception as error:
                raise UsageError(
                    f"cannot be sent to a worker process: {reprlib.repr(self._content)}: {error}. "
                    "Define the worker function and its arguments' classes at the top level of a "
                    "module that can be imported."
                ) from error
        return self._descriptor


def _delivered(handle: object) -> Delivery:
    return Delivery(handle.detach())  # type: ignore[attr-defined]


class HandedOver:
    """A descriptor of the parent that arrives in a child, as part of what is sealed, as an int.

    Parameters
    ----------
    descriptor
        The parent keeps it, and may close it once the child is started.
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
    """A process, started, with the parent's end of its pipe and a descriptor that tells its death.

    All of it is for one thread at a time. The kernel kills the child when the thread that started
    it ends (see `virnucpro.runtime.child`).

    Parameters
    ----------
    name
        Name of the process, for people.
    target
        Called in the child as ``target(connection, *arguments)``; a function of a module that is
        light to import.
    arguments
        Plain data, and what is `Sealed`, which arrives as a `Delivery`.

    Raises
    ------
    UsageError
        When what is sealed cannot be pickled; no process was started.
    OSError
        When the system has no process or descriptor left to give.
    """

    def __init__(
        self,
        name: str,
        target: Callable[..., None],
        arguments: Sequence[object] = (),
    ) -> None:
        ours, theirs = SPAWN.Pipe(duplex=True)
        process = SPAWN.Process(target=target, name=name, args=(theirs, *arguments))
        try:
            process.start()
        except BaseException:
            ours.close()
            raise
        finally:
            # While the parent holds a copy of the child's end, the child's death is no end of file.
            theirs.close()
            for argument in arguments:
                if isinstance(argument, Sealed):
                    argument.close()
        os.set_blocking(ours.fileno(), False)
        self.process = process
        self.reads = 0
        self._pipe = ours
        self._decoder = Decoder()
        self._pidfd = _pidfd(process)

    @property
    def pid(self) -> int | None:
        """The child's process id."""
        return self.process.pid

    @property
    def sentinel(self) -> int:
        """A descriptor that is ready for reading once the child is dead."""
        return self.process.sentinel if self._pidfd is None else self._pidfd

    @property
    def pipe(self) -> Connection | None:
        """What to wait for besides the sentinel; None when the child can say no more."""
        return None if self._pipe.closed else self._pipe

    @property
    def unfinished(self) -> int:
        """Bytes of a message whose end has not come yet."""
        return self._decoder.unfinished

    def messages(self) -> Iterator[Message]:
        """Yield the messages that one look at the pipe brings. Never blocks.

        Raises
        ------
        WorkerError
            When the pipe carries anything else.
        """
        for message in self._decoder.feed(self._read()):
            yield message
            if self._pipe.closed:
                return

    def last_messages(self) -> Iterator[Message]:
        """Yield all that a dead child left in its pipe. Never blocks, end of file or not.

        A process that the child forked may hold the pipe's other end open.
        """
        while data := self._read():
            for message in self._decoder.feed(data):
                yield message
                if self._pipe.closed:
                    return

    def exit_code(self) -> int | None:
        """Collect the exit code of a dead child, as `multiprocessing` counts it.

        Returns
        -------
        None when somebody else waited for the process and keeps the code to himself.
        """
        deadline = time.monotonic() + _REAPED_ELSEWHERE_S
        # Race: another thread's waitpid may have come first; multiprocessing notes its result a
        # moment later.
        while self.process.exitcode is None and time.monotonic() < deadline:
            time.sleep(0.001)
        self.process.join(0)  # multiprocessing keeps a process, and its descriptors, until joined
        return self.process.exitcode

    def signal(self, signum: signal.Signals) -> None:
        """Send a signal, where the child lives."""
        if self.process.pid is not None and self.process.exitcode is None:
            os.kill(self.process.pid, signum)

    def terminate(self) -> None:
        """Send SIGTERM."""
        self.process.terminate()

    def kill(self) -> None:
        """Send SIGKILL."""
        self.process.kill()

    def close_pipe(self) -> None:
        """Hear no more; the child's next message raises BrokenPipeError there."""
        self._pipe.close()

    def close(self) -> None:
        """Give the descriptors back. The child goes on living if it lives."""
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


def _pidfd(process: SpawnProcess) -> int | None:
    """Open a descriptor of the process itself.

    multiprocessing's sentinel is a pipe, which a process that the child forked holds open beyond
    its death.
    """
    if process.pid is None:
        return None
    try:
        return os.pidfd_open(process.pid)
    except OSError:  # Linux before 5.3, a sandbox, or collected by another thread: the pipe must do
        return None


def wait_for_parent() -> None:
    """In a child: block until the parent is dead, even one that was killed."""
    parent = parent_process()
    if parent is not None:
        connection.wait([parent.sentinel])


@contextmanager
def interrupts_held() -> Iterator[None]:
    """Delay stop signals to this thread while a child is started and recorded.

    The child inherits the blocked signals: Ctrl-C reaches the whole foreground group, and must not
    kill a child before that has chosen its signals (`virnucpro.runtime.child`).
    """
    # Started later, with the first child, the tracker would unblock the signals.
    resource_tracker.ensure_running()
    # Python runs its signal handlers in the main thread alone.
    main = threading.current_thread() is threading.main_thread()
    before = signal.pthread_sigmask(signal.SIG_BLOCK, STOPPING if main else {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)

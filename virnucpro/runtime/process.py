"""The only file that touches `multiprocessing`: one child process with its private pipe."""

import os
import pickle
import reprlib
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from multiprocessing import get_context, reduction, resource_tracker
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnContext, SpawnProcess

from virnucpro.errors import UsageError
from virnucpro.runtime.messages import Decoder, Message
from virnucpro.runtime.signals import STOPPING

__all__ = [
    "SPAWN",
    "Child",
    "Connection",
    "HandedOver",
    "Sealed",
    "SpawnContext",
    "SpawnProcess",
    "interrupts_held",
    "unseal",
]

SPAWN: SpawnContext = get_context("spawn")
"""Fork would copy the locks, threads and CUDA state of the parent."""

_READ_SIZE = 1 << 20
"""Bytes read from a pipe at a time: no child delays the others for long."""

_REAPED_ELSEWHERE_S = 0.5
"""Longest time in seconds that another thread, collecting an exit code, may take to note it."""


class Sealed:
    """In the parent: an object that arrives in a child as an int, for `unseal`.

    Unpickling imports the content's modules, so a child sets up its process first. The pickle is in
    a memory file, so the parent does not wait until a child has read it. The content may include
    objects that `multiprocessing` shares only by inheritance (events, queues, locks).

    Parameters
    ----------
    content
        An object that can be pickled.
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
        """Return the descriptor of the memory file; write it at the first call."""
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


def unseal(descriptor: int) -> object:
    """In the child: unpickle the content of a `Sealed`, which imports its modules. Only once."""
    with os.fdopen(descriptor, "rb") as stream:
        stream.seek(0)
        return pickle.load(stream)  # noqa: S301 - written by this child's own parent


class HandedOver:
    """A descriptor of the parent, part of a `Sealed`, that arrives in a child as an int.

    Parameters
    ----------
    descriptor
        Stays open in the parent, which may close it after the start of the child.
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
        Called in the child as ``target(connection, *arguments)``; a function of a module with few
        imports.
    arguments
        Plain data, or `Sealed` objects, which arrive as an int.

    Raises
    ------
    UsageError
        If a `Sealed` object cannot be pickled; no process was started.
    OSError
        If the system refuses a process or a descriptor.
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
            # An open copy of the child's end would prevent the end of file at the child's death.
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
    def sentinel(self) -> int:
        """A descriptor that becomes readable at the child's death."""
        return self.process.sentinel if self._pidfd is None else self._pidfd

    @property
    def pipe(self) -> Connection | None:
        """The parent's end of the pipe, or None if it is closed."""
        return None if self._pipe.closed else self._pipe

    @property
    def unfinished(self) -> int:
        """Number of bytes of an incomplete message."""
        return self._decoder.unfinished

    def messages(self, *, dead: bool = False) -> Iterator[Message]:
        """Yield the messages of one read of the pipe, or all that a dead child left there.

        Never blocks, even if a fork of the child holds the other end open.

        Raises
        ------
        WorkerError
            If the pipe contains anything else.
        """
        while data := self._read():
            for message in self._decoder.feed(data):
                yield message
                if self._pipe.closed:
                    return
            if not dead:
                return

    def exit_code(self) -> int | None:
        """Return the exit code of a dead child, as `multiprocessing` defines it.

        Returns
        -------
        None if other code collected it.
        """
        deadline = time.monotonic() + _REAPED_ELSEWHERE_S
        # Race: after a waitpid in another thread, multiprocessing sets the code a moment later.
        while self.process.exitcode is None and time.monotonic() < deadline:
            time.sleep(0.001)
        self.process.join(0)  # multiprocessing keeps a process, and its descriptors, until joined
        return self.process.exitcode

    def signal(self, signum: signal.Signals) -> None:
        """Send a signal if the child is alive."""
        if self.process.pid is not None and self.process.exitcode is None:
            os.kill(self.process.pid, signum)

    def close_pipe(self) -> None:
        """Close the pipe; the child's next message raises BrokenPipeError there."""
        self._pipe.close()

    def close(self) -> None:
        """Close the descriptors. A living child is not ended."""
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

    multiprocessing's sentinel is a pipe, which a fork of the child holds open after its death.
    """
    if process.pid is None:
        return None
    try:
        return os.pidfd_open(process.pid)
    except OSError:  # Linux before 5.3, a sandbox, or collected by another thread: use the pipe
        return None


@contextmanager
def interrupts_held() -> Iterator[None]:
    """Delay stop signals to this thread while a child is started and recorded.

    The child inherits the blocked signals: Ctrl-C reaches the whole foreground group, and must not
    kill a child before its signal handlers are set (`virnucpro.runtime.child`).
    """
    # A later start of the tracker, with the first child, would unblock the signals.
    resource_tracker.ensure_running()
    # Python runs its signal handlers in the main thread alone.
    main = threading.current_thread() is threading.main_thread()
    before = signal.pthread_sigmask(signal.SIG_BLOCK, STOPPING if main else {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)

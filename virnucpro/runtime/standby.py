"""Processes that are started before it is known what they will do."""

import os
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Self

from virnucpro.runtime.child import Setup, stand_by
from virnucpro.runtime.devices import Device
from virnucpro.runtime.process import Child, Sealed, interrupts_held, wait_for_any
from virnucpro.runtime.threads import thread_variables

__all__ = ["Standby"]

_DEATH_S = 10.0
"""Seconds that the kernel has to carry a SIGKILL out."""


class Standby:
    """A process for each of the first ranks: it masks its device, prepares itself, and waits.

    Importing torch takes a second, in which the parent finds out what there is to do. Who starts
    workers takes the processes from here as far as they go, and starts others where one is missing,
    dead, or made for another device. An error in the preparation is that of the worker. Use it as a
    context manager, in a thread that outlives the work: the kernel kills the processes when it
    ends.

    Parameters
    ----------
    devices
        One a process; the process of rank r gets the r-th.
    prepare
        What each does after the mask is set: a function of a module, without arguments.
    threads
        Threads that the numeric libraries of a process may use; None leaves it to them. They read
        it as they are imported: a worker whose order says another number has to tell them so.

    Notes
    -----
    A process that the system refuses is not missed here: who needs it asks again, and is told why.
    """

    def __init__(
        self,
        devices: Sequence[Device],
        prepare: Callable[[], object],
        threads: int | None = None,
    ) -> None:
        self._children: dict[int, tuple[Device, Child]] = {}
        variables = thread_variables(threads, os.environ)
        for rank, device in enumerate(devices):
            environment = device.environment | variables
            try:
                with interrupts_held():
                    child = Child(
                        f"virnucpro-rank-{rank:04d}",
                        stand_by,
                        (Sealed(prepare), os.getpid(), environment),
                    )
                    self._children[rank] = device, child
            except OSError:
                break
            except BaseException:  # an interrupt
                self.close()
                raise

    @property
    def pids(self) -> dict[int, int]:
        """The process ids of those that wait, by rank."""
        pids = {rank: child.pid for rank, (_, child) in self._children.items()}
        return {rank: pid for rank, pid in pids.items() if pid is not None}

    def take(self, setup: Setup, order: Sealed) -> Child | None:
        """Have the process of a rank do its work; None where there is none that can.

        Parameters
        ----------
        order
            ``(function, arguments)``.

        Raises
        ------
        UsageError
            When the order cannot be pickled.
        """
        device, child = self._children.pop(setup.rank, (None, None))
        if device is None or child is None:
            return None
        fits = device.environment.items() <= setup.environment.items()
        given = False
        try:
            given = fits and child.give(Sealed(setup), order)
        finally:
            if not given:
                _end([child])
        return child if given else None

    def close(self) -> None:
        """End all processes that nobody took: they hold nothing that could be lost."""
        children = [child for _, child in self._children.values()]
        self._children.clear()
        _end(children)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()


def _end(children: Sequence[Child]) -> None:
    for child in children:
        child.kill()
    for child in children:
        wait_for_any([child.sentinel], _DEATH_S)
        child.exit_code()
        child.close()

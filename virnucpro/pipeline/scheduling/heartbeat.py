"""Progress of work that has no pieces to count: whoever uses the processor gets on."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Self

__all__ = ["BEAT_S", "WORK_S", "CpuHeartbeat"]

BEAT_S = 0.1
"""Seconds between two looks."""

WORK_S = 0.05
"""Seconds of processor time that are progress: more than a signal's handler takes, such as the one
that writes stacks; less than reading ten million bases does."""


class CpuHeartbeat:
    """Within its block, tells of progress whenever the thread that began it has worked a while.

    For files to be read, checked and written: their pieces differ in size a thousandfold, but who
    waits for ever for a disk, a lock or a network uses no processor at all, and one that is stopped
    or holds the interpreter's lock for good lets no other thread tell of it. What this does not
    see is an endless loop in plain Python.

    Parameters
    ----------
    progressed
        Called from a thread of its own.
    """

    def __init__(self, progressed: Callable[[], object]) -> None:
        self._progressed = progressed
        self._counted = False
        self._over = threading.Event()

    def __enter__(self) -> Self:
        clock = time.pthread_getcpuclockid(threading.get_ident())
        self._thread = threading.Thread(
            target=self._look, args=(clock,), name="virnucpro-busy", daemon=True
        )
        self._thread.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self._over.set()
        self._thread.join()

    @contextmanager
    def leaving_it_to_batches(self) -> Iterator[None]:
        """Tell nothing meanwhile: there are pieces that are counted."""
        self._counted = True
        try:
            yield
        finally:
            self._counted = False

    def _look(self, clock: int) -> None:
        told = time.clock_gettime(clock)
        while not self._over.wait(BEAT_S):
            used = time.clock_gettime(clock)
            if used - told > WORK_S and not self._counted:
                told = used
                self._progressed()

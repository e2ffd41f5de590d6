"""Heartbeats of work that reports no progress itself, such as reading files."""

import threading
import time
from collections.abc import Callable
from typing import Self

__all__ = ["BEAT_S", "WORK_S", "CpuHeartbeat"]

BEAT_S = 0.1
"""Seconds between two measurements."""

WORK_S = 0.05
"""CPU seconds that count as progress: more than a signal handler that writes stacks needs, less
than reading ten million bases."""


class CpuHeartbeat:
    """Call `progressed` in its block whenever the thread that entered it used the CPU for a while.

    A thread that waits for a disk, a lock or a network uses no CPU. A stopped process, and one that
    never releases the interpreter's lock, cannot run the measuring thread. An endless loop in
    Python is not detected.

    Parameters
    ----------
    progressed
        Called from a thread of its own.

    Attributes
    ----------
    paused
        True while the work reports its progress itself.
    """

    def __init__(self, progressed: Callable[[], object]) -> None:
        self.progressed = progressed
        self.paused = False
        self._over = threading.Event()

    def __enter__(self) -> Self:
        clock = time.pthread_getcpuclockid(threading.get_ident())
        self._thread = threading.Thread(
            target=self._measure, args=(clock,), name="virnucpro-heartbeat", daemon=True
        )
        self._thread.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self._over.set()
        self._thread.join()

    def _measure(self, clock: int) -> None:
        reported = time.clock_gettime(clock)
        while not self._over.wait(BEAT_S):
            used = time.clock_gettime(clock)
            if used - reported > WORK_S and not self.paused:
                reported = used
                self.progressed()

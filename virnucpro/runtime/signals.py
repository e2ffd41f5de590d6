"""Signals: as a scoped context of a program, and what a worker does about its own."""

import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

__all__ = [
    "ECHO_S",
    "StopRequested",
    "call_on_alarm",
    "call_on_stop",
    "ignore_stops",
    "set_alarm",
    "stop_on_signals",
]

ECHO_S = 0.3
"""Seconds within which the same signal again means the same request."""

STOPPING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class StopRequested(BaseException):
    """Somebody asked the program to stop. Not an Exception: no handler of errors may eat it."""

    def __init__(self, signum: int) -> None:
        super().__init__(signal.Signals(signum).name)
        self.signum = signum


@contextmanager
def stop_on_signals() -> Iterator[None]:
    """Raise StopRequested in the main thread at the first SIGINT, SIGTERM or SIGHUP.

    A second signal ends the process at once; its workers follow it, as they do whenever their
    parent ends. The same one again within `ECHO_S` is no second one: schedulers signal a script and
    its program, and the script passes its own on. The handlers that stood before are put back on
    exit. Main thread only.
    """
    asked: tuple[int, float] | None = None

    def stop(signum: int, _frame: FrameType | None) -> None:
        nonlocal asked
        now = time.monotonic()
        if asked is None:
            asked = signum, now
            raise StopRequested(signum)
        first, at = asked
        if signum != first or now - at > ECHO_S:
            os._exit(128 + signum)

    # A signal that was ignored on entry (nohup) stays ignored.
    wanted = [one for one in STOPPING if signal.getsignal(one) != signal.SIG_IGN]
    before = {one: signal.signal(one, stop) for one in wanted}
    try:
        yield
    finally:
        for signum, handler in before.items():
            signal.signal(signum, handler)


def call_on_alarm(function: Callable[[], None]) -> None:
    """In a worker: call a function in its main thread, between two bytecodes, at each alarm."""
    signal.signal(signal.SIGALRM, lambda _signum, _frame: function())


def set_alarm(seconds: float) -> None:
    """Have the alarm come in so many seconds, once; 0 for never."""
    signal.setitimer(signal.ITIMER_REAL, seconds)


def call_on_stop(function: Callable[[], None]) -> None:
    """In a worker: call a function in its main thread when the parent asks it to end."""
    signal.signal(signal.SIGTERM, lambda _signum, _frame: function())


def ignore_stops() -> None:
    """In a worker: be asked to end and go on, while putting away."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)

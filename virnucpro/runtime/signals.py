"""Signal handlers of a program, for the duration of a context, and of a worker."""

import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

__all__ = [
    "ECHO_S",
    "STOPPING",
    "StopRequested",
    "call_on_alarm",
    "call_on_stop",
    "ignore_stops",
    "raise_if_asked_to_stop",
    "set_alarm",
    "stop_on_signals",
]

ECHO_S = 0.3
"""Seconds within which a repetition of a signal is the same request."""

STOPPING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""Signals that stop a program."""


class StopRequested(BaseException):
    """A signal asked the program to stop. Not an Exception: error handlers must not catch it."""

    def __init__(self, signum: int) -> None:
        super().__init__(signal.Signals(signum).name)
        self.signum = signum


class _Request:
    """`signum`: the first signal, or None; `at`: its time."""

    def __init__(self) -> None:
        self.signum: int | None = None
        self.at = 0.0

    def receive(self, signum: int, frame: FrameType | None) -> None:
        """Raise StopRequested for the first signal; end the process at another one."""
        now = time.monotonic()
        if self.signum is None and _in_import(frame):
            signal.signal(signum, signal.SIG_DFL)
            signal.raise_signal(signum)
        elif self.signum is None:
            self.signum, self.at = signum, now
            raise StopRequested(signum)
        elif signum != self.signum or now - self.at > ECHO_S:
            os._exit(128 + signum)


def _in_import(frame: FrameType | None) -> bool:
    while frame is not None:
        if frame.f_globals.get("__name__") in {"importlib._bootstrap", "_frozen_importlib"}:
            return True
        frame = frame.f_back
    return False


_requests: list[_Request] = []


@contextmanager
def stop_on_signals() -> Iterator[None]:
    """Raise StopRequested in the main thread at the first SIGINT, SIGTERM or SIGHUP.

    During an import, which may drop or convert exceptions, the signal ends the process at once. So
    does a second signal; the workers end with the process. A repetition within `ECHO_S`
    does not count: schedulers signal a script and its program, and the script forwards its signal.
    The former handlers are restored on exit. Call it in the main thread.

    Raises
    ------
    StopRequested
        Also in place of any error after the signal: it may be a consequence.
    """
    request = _Request()
    # A signal that was ignored on entry (nohup) stays ignored.
    wanted = [one for one in STOPPING if signal.getsignal(one) != signal.SIG_IGN]
    before = {one: signal.signal(one, request.receive) for one in wanted}
    _requests.append(request)
    try:
        yield
    except Exception as error:
        if request.signum is not None:
            raise StopRequested(request.signum) from error
        raise
    finally:
        _requests.pop()
        for signum, handler in before.items():
            signal.signal(signum, handler)


def raise_if_asked_to_stop() -> None:
    """Raise StopRequested again if it was raised and lost.

    C code that calls Python code may drop an exception. Call this regularly in long work, but not
    in cleanup.
    """
    if _requests and (signum := _requests[-1].signum) is not None:
        raise StopRequested(signum)


def call_on_alarm(function: Callable[[], None]) -> None:
    """In a worker: call a function in the main thread, between two bytecodes, at each alarm."""
    signal.signal(signal.SIGALRM, lambda _signum, _frame: function())


def set_alarm(seconds: float) -> None:
    """Set one alarm, `seconds` from now; 0 cancels it."""
    signal.setitimer(signal.ITIMER_REAL, seconds)


def call_on_stop(function: Callable[[], None]) -> None:
    """In a worker: call a function in the main thread when the parent sends SIGTERM."""
    signal.signal(signal.SIGTERM, lambda _signum, _frame: function())


def ignore_stops() -> None:
    """In a worker: ignore SIGTERM during the cleanup."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)

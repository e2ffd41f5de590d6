"""Signals: as a scoped context of a program, and what a worker does about its own."""

import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Final

__all__ = [
    "ECHO_S",
    "PATIENCE_S",
    "StopRequested",
    "call_on_alarm",
    "call_on_stop",
    "ignore_stops",
    "raise_if_asked_to_stop",
    "set_alarm",
    "stop_on_signals",
]

ECHO_S = 0.3
"""Seconds within which the same signal again means the same request."""

STOPPING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

_IN_ONE_PIECE: Final = frozenset(
    {"_frozen_importlib", "importlib._bootstrap", "multiprocessing.popen_spawn_posix"}
)
"""Modules whose work is not broken off."""

PATIENCE_S: Final = 5.0
"""How long a request waits for an import: one that hangs, on a file system that is gone, may not
keep the process alive until it is killed."""

_LATER_S: Final = 0.01


class StopRequested(BaseException):
    """Somebody asked the program to stop. Not an Exception: no handler of errors may eat it."""

    def __init__(self, signum: int) -> None:
        super().__init__(signal.Signals(signum).name)
        self.signum = signum


@contextmanager
def stop_on_signals() -> Iterator[None]:
    """Raise StopRequested in the main thread at the first SIGINT, SIGTERM or SIGHUP.

    Not within an import, where an exception may vanish or leave a module in pieces, nor while a
    process is being started: it is raised when that is over, on exit at the latest, or has taken
    `PATIENCE_S`. A second signal ends the process at
    once; its workers follow it, as they do whenever their parent ends. The same one again within
    `ECHO_S` is no second one: schedulers signal a script and its program, and the script passes its
    own on. The handlers that stood before are put back on exit. Main thread only.
    """
    request = _Request(depth=len(_frames(sys._getframe(2))))  # noqa: SLF001 - whoever entered this
    # A signal that was ignored on entry (nohup) stays ignored.
    wanted = [one for one in STOPPING if signal.getsignal(one) != signal.SIG_IGN]
    before = {one: signal.signal(one, request.ask) for one in wanted}
    _requests.append(request)
    try:
        yield
    finally:
        _requests.pop()
        request.close()
        for signum, handler in before.items():
            signal.signal(signum, handler)
    request.raise_if_held_back()


def raise_if_asked_to_stop() -> None:
    """Raise StopRequested once more, where it was raised and lost.

    Whatever calls Python code from C may drop an exception without a word. To be called now and
    then where work goes on, never where it is cleaned up after.
    """
    if _requests and (signum := _requests[-1].raised) is not None:
        raise StopRequested(signum)


class _Request:
    """A request to stop, and where it may be raised.

    Parameters
    ----------
    depth
        How many frames lie below those that it may interrupt.

    Attributes
    ----------
    raised
        The signal for which StopRequested was raised, or None.
    """

    def __init__(self, depth: int) -> None:
        self.raised: int | None = None
        self._depth = depth
        self._asked: tuple[int, float] | None = None
        self._alarm: _Alarm | None = None

    def ask(self, signum: int, frame: FrameType | None) -> None:
        """Hear a signal."""
        now = time.monotonic()
        if self._asked is None:
            self._asked = signum, now
            self._raise(frame)
            return
        first, at = self._asked
        if signum != first or now - at > ECHO_S:
            os._exit(128 + signum)

    def raise_if_held_back(self) -> None:
        """Raise what nobody has heard of yet."""
        if self._asked is not None and self.raised is None:
            self.raised, _ = self._asked
            raise StopRequested(self.raised)

    def close(self) -> None:
        """Give the alarm back, where it was taken."""
        if self._alarm is not None:
            self._alarm.give_back()
            self._alarm = None

    def _raise(self, frame: FrameType | None) -> None:
        assert self._asked is not None
        _, at = self._asked
        inner = _frames(frame)[: -self._depth]
        whole = any(one.f_globals.get("__name__") in _IN_ONE_PIECE for one in inner)
        if whole and time.monotonic() - at < PATIENCE_S:
            self._alarm = self._alarm or _Alarm(self._raise)
            set_alarm(_LATER_S)
        else:
            self.raise_if_held_back()


class _Alarm:
    """The process's alarm, taken from whoever has it."""

    def __init__(self, call: Callable[[FrameType | None], None]) -> None:
        self._handler = signal.signal(signal.SIGALRM, lambda _, frame: call(frame))
        self._left, self._interval = signal.setitimer(signal.ITIMER_REAL, 0)
        self._since = time.monotonic()

    def give_back(self) -> None:
        """Put handler and timer back: one that has come due meanwhile comes at once."""
        set_alarm(0)
        # A handler that was not set from Python is None here, and cannot be put back.
        signal.signal(signal.SIGALRM, signal.SIG_DFL if self._handler is None else self._handler)
        if self._left:
            left = max(self._left - (time.monotonic() - self._since), _LATER_S)
            signal.setitimer(signal.ITIMER_REAL, left, self._interval)


def _frames(frame: FrameType | None) -> list[FrameType]:
    """List the frames that are being executed, from `frame` outwards."""
    found = []
    while frame is not None:
        found.append(frame)
        frame = frame.f_back
    return found


_requests: list[_Request] = []


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

"""Signal handlers of the main program (as a context manager) and of workers."""

import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import NoReturn

ECHO_S = 0.3
"""Seconds after a signal in which a second, identical signal is ignored."""

STOPPING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""Signals that stop a program."""

WARNINGS = (signal.SIGUSR1, signal.SIGUSR2, signal.SIGXCPU, signal.SIGALRM)
"""Signals of schedulers before a limit; they stop a program as SIGTERM does, if it has no handler.

The kernel repeats SIGXCPU every second. A repeated warning has no effect.
"""


class StopRequested(BaseException):
    """Exception after a stop signal. A BaseException: ``except Exception`` does not catch it."""

    def __init__(self, signum: int) -> None:
        super().__init__(signal.Signals(signum).name)
        self.signum = signum

    @property
    def exit_code(self) -> int:
        """Return the exit code of the program: 128 + signal; for `WARNINGS` that of SIGTERM."""
        return 128 + (signal.SIGTERM if self.signum in WARNINGS else self.signum)


class _Request:
    """The first stop signal: its number `signum` (None: no signal yet) and its time `at`.

    The time is in seconds of `time.monotonic`.
    """

    def __init__(self) -> None:
        self.signum: int | None = None
        self.at = 0.0

    def receive(self, signum: int, frame: FrameType | None) -> None:
        """Raise StopRequested at the first signal; end the process at the second signal."""
        now = time.monotonic()
        if self.signum is None and _in_import(frame):
            if signum in WARNINGS:  # by default, these signals have exit codes of their own
                _exit(signum)
            signal.signal(signum, signal.SIG_DFL)
            signal.raise_signal(signum)
        elif self.signum is None:
            self.signum, self.at = signum, now
            raise StopRequested(signum)
        elif signum != self.signum or (now - self.at > ECHO_S and signum not in WARNINGS):
            os._exit(StopRequested(signum).exit_code)


def _in_import(frame: FrameType | None) -> bool:
    while frame is not None:
        if frame.f_globals.get("__name__") in {"importlib._bootstrap", "_frozen_importlib"}:
            return True
        frame = frame.f_back
    return False


_requests: list[_Request] = []


def exit_on_warnings() -> None:
    """Make `WARNINGS` end the program with the exit code of SIGTERM, until `stop_on_signals`."""
    for signum in _unhandled_warnings():
        signal.signal(signum, _exit)


def _exit(signum: int, _frame: FrameType | None = None) -> NoReturn:
    stop = StopRequested(signum)
    with suppress(OSError):
        os.write(2, f"[virnucpro] stopped ({stop}). Rerun the command.\n".encode())
    os._exit(stop.exit_code)


def _unhandled_warnings() -> list[signal.Signals]:
    return [one for one in WARNINGS if signal.getsignal(one) in (signal.SIG_DFL, _exit)]


@contextmanager
def stop_on_signals() -> Iterator[None]:
    """Raise StopRequested in the main thread at the first of `STOPPING` and `WARNINGS`.

    A second signal ends the process immediately, and the workers end with it. A signal during an
    import also ends the process, since imports may suppress exceptions. A repetition of
    the first signal within `ECHO_S` is ignored: a scheduler signals the job script and the program,
    and the script may forward its signal. The former handlers are restored on exit. Call this in
    the main thread.

    Raises
    ------
    StopRequested
        After a stop signal. If the block ends with another exception, StopRequested replaces it,
        because the stop may be its cause.
    """
    request = _Request()
    # A signal that was ignored on entry (nohup) stays ignored; a host's timer keeps its SIGALRM.
    wanted = [number for number in STOPPING if signal.getsignal(number) != signal.SIG_IGN]
    wanted += _unhandled_warnings()
    before = {number: signal.signal(number, request.receive) for number in wanted}
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
    """Raise StopRequested if a stop signal was received.

    C code that calls Python code may suppress the first StopRequested. Call this regularly in long
    work, but not in cleanup.
    """
    if _requests and (signum := _requests[-1].signum) is not None:
        raise StopRequested(signum)


def call_on_alarm(function: Callable[[], None]) -> None:
    """Register a function that the worker's main thread calls at the end of `set_alarm`'s time."""

    def alarm(_signum: int, _frame: FrameType | None) -> None:
        if not signal.getitimer(signal.ITIMER_REAL)[0]:  # else a scheduler sent the signal
            function()

    signal.signal(signal.SIGALRM, alarm)


def set_alarm(seconds: float) -> None:
    """Schedule one SIGALRM for this process after `seconds`; 0 cancels the scheduled signal.

    The longest time is 30 years; the timer of the system ends at about 290.
    """
    signal.setitimer(signal.ITIMER_REAL, min(seconds, 1e9))


def call_on_stop(function: Callable[[], None]) -> None:
    """Register a function that the worker's main thread calls when the worker receives SIGTERM."""
    signal.signal(signal.SIGTERM, lambda _signum, _frame: function())


def ignore_stops() -> None:
    """Ignore SIGTERM from now on; a worker calls this at the start of its cleanup."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)

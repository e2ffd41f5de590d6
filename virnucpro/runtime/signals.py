"""Signals as a scoped context: installed on entry, put back on exit."""

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

__all__ = ["StopRequested", "stop_on_signals"]

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
    parent ends. The handlers that stood before are put back on exit. Main thread only.
    """
    asked = False

    def stop(signum: int, _frame: FrameType | None) -> None:
        nonlocal asked
        if asked:
            os._exit(128 + signum)
        asked = True
        raise StopRequested(signum)

    # A signal that was ignored on entry (nohup) stays ignored.
    wanted = [one for one in STOPPING if signal.getsignal(one) != signal.SIG_IGN]
    before = {one: signal.signal(one, stop) for one in wanted}
    try:
        yield
    finally:
        for signum, handler in before.items():
            signal.signal(signum, handler)

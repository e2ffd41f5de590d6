"""Progress of a download: one changing line on a terminal, a line every 10 s elsewhere."""

import sys
import time
from collections.abc import Callable
from typing import Final, Self

from virnucpro.console import say

__all__ = ["TransferReporter"]

_TERMINAL_INTERVAL_S: Final = 0.2
_LOG_INTERVAL_S: Final = 10.0


class TransferReporter:
    """Reporter of downloads, on standard error: name, received bytes and size of the file."""

    def __init__(self, *, quiet: bool, clock: Callable[[], float] = time.monotonic) -> None:
        self._quiet = quiet
        self._clock = clock
        self._terminal = sys.stderr.isatty()
        self._interval = _TERMINAL_INTERVAL_S if self._terminal else _LOG_INTERVAL_S
        self._next = clock() + self._interval
        self._unfinished_line = False

    def stage(self, text: str) -> None:
        """Print the name of the stage of work that starts now."""
        self._end_line()
        if not self._quiet:
            say(text)

    def progress(self, name: str, have: int, size: int | None) -> None:
        """Report the received bytes `have` of the file `name`, at most once per interval."""
        if self._quiet or self._clock() < self._next:
            return
        self._next = self._clock() + self._interval
        total = f" of {size / 1e6:,.1f} MB ({have / size:.0%})" if size else " MB"
        line = f"{name}: {have / 1e6:,.1f}{total}"
        if self._terminal:
            print(f"\r[virnucpro] {line}\x1b[K", end="", file=sys.stderr, flush=True)
            self._unfinished_line = True
        else:
            say(line)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self._end_line()

    def _end_line(self) -> None:
        if self._unfinished_line:
            print(file=sys.stderr, flush=True)
            self._unfinished_line = False

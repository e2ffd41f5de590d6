"""What a person sees of a download: one moving line on a terminal, plain lines elsewhere."""

import sys
import time
from collections.abc import Callable
from typing import Final, Self, TextIO

__all__ = ["TransferReporter"]

_ON_A_TERMINAL: Final = 0.2
_IN_A_LOG: Final = 10.0
"""Seconds between two reports of progress."""


class TransferReporter:
    """Tells on standard error which file is on its way and how much of it has arrived."""

    def __init__(
        self,
        *,
        quiet: bool,
        stream: TextIO | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._quiet = quiet
        self._stream = sys.stderr if stream is None else stream
        self._terminal = self._stream.isatty()
        self._every = _ON_A_TERMINAL if self._terminal else _IN_A_LOG
        self._clock = clock
        self._next = clock() + self._every
        self._open_line = False

    def stage(self, text: str) -> None:
        """Say that a stage of the work begins."""
        if not self._quiet:
            self._end_line()
            print(f"[virnucpro] {text}", file=self._stream, flush=True)

    def progress(self, name: str, have: int, size: int | None) -> None:
        """Show how much of a file has arrived, every so often."""
        if self._quiet or self._clock() < self._next:
            return
        self._next = self._clock() + self._every
        share = "" if not size else f" of {size / 1e6:,.1f} MB ({have / size:.0%})"
        line = f"[virnucpro] {name}: {have / 1e6:,.1f}{share or ' MB'}"
        if self._terminal:
            print(f"\r{line}\x1b[K", end="", file=self._stream, flush=True)
            self._open_line = True
        else:
            print(line, file=self._stream, flush=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self._end_line()

    def _end_line(self) -> None:
        if self._open_line:
            print(file=self._stream, flush=True)
            self._open_line = False

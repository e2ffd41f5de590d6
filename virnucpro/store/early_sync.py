"""Flush a large file to disk while it is written."""

import os
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Final, Self

__all__ = ["EarlySync"]

_BYTES: Final = 256 << 20
"""Bytes after which a flush begins, unless an earlier one goes on."""


class EarlySync:
    """Context manager that flushes a growing file in a thread, and raises the errors of flushes.

    Without it, all of a large file would be flushed at its end, when nothing else is left to do.

    Parameters
    ----------
    handle
        Number of the open file.
    """

    def __init__(self, handle: int) -> None:
        self._handle = handle
        self._pending = 0
        self._flush: Future[None] | None = None

    def wrote(self, n_bytes: int) -> None:
        """Note that `n_bytes` were written; begin to flush them if they are many.

        Raises
        ------
        OSError
            If an earlier flush failed: the kernel reports such an error only once.
        """
        self._pending += n_bytes
        if self._pending < _BYTES or (self._flush is not None and not self._flush.done()):
            return
        if self._flush is not None:
            self._flush.result()
        self._pending = 0
        self._flush = self._pool.submit(os.fdatasync, self._handle)

    def __enter__(self) -> Self:
        self._pool = ThreadPoolExecutor(1, "early-sync")
        return self

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        self._pool.shutdown()
        if error is None and self._flush is not None:
            self._flush.result()

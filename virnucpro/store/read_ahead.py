"""Read many files one after the other, in threads where that is faster."""

import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import islice
from pathlib import Path
from typing import Final, TypeVar

__all__ = ["read_ahead"]

Result = TypeVar("Result")

_READERS: Final = 4
"""Threads that read and verify the next files; each thread keeps one result in memory."""
_LONG_S: Final = 0.0005
"""Seconds per file from which on threads pay: four take 2.5 times as long for small files in the
page cache.
"""
_LONG_FILES: Final = 8
"""Files that take that long, one after another, before threads read; HDF5 reads the first."""
_FILES_IN_THREADS: Final = 256
"""Files that threads read before this is measured again."""


def read_ahead(
    read: Callable[[Path], Result], paths: Iterable[Path]
) -> Iterator[tuple[Path, Result]]:
    """Call `read` with each path, in prefetch threads if that pays; yield path and result in order.

    Small files in the cache are read in this thread: Python's lock makes threads slower there. If
    eight files take longer, because they are large or the disk is slow, threads read the next 256.

    An exception of `read` is raised at its path. The results of up to five paths are in memory.
    """
    rest, long_ones = iter(paths), 0
    for path in rest:
        started = time.perf_counter()
        result = read(path)
        long_ones = long_ones + 1 if time.perf_counter() - started > _LONG_S else 0
        yield path, result
        del result
        if long_ones == _LONG_FILES:
            yield from _in_threads(read, islice(rest, _FILES_IN_THREADS))
            long_ones = 0


def _in_threads(
    read: Callable[[Path], Result], paths: Iterable[Path]
) -> Iterator[tuple[Path, Result]]:
    ahead: deque[tuple[Path, Future[Result]]] = deque()
    with ThreadPoolExecutor(_READERS, "segment-reader") as pool:
        try:
            for path in paths:
                ahead.append((path, pool.submit(read, path)))
                if len(ahead) > _READERS:
                    path, future = ahead.popleft()  # noqa: PLW2901 - the oldest one
                    yield path, future.result()
            for path, future in ahead:
                yield path, future.result()
        finally:
            for _, future in ahead:
                future.cancel()

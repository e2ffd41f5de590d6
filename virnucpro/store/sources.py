"""Where vectors come from: segments on disk, read and verified while others are worked on."""

from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Protocol

import numpy as np
import numpy.typing as npt

from virnucpro.errors import DamagedSegmentError
from virnucpro.store.segment import Segment, read_segment

__all__ = ["Sources", "read_ahead"]

_READERS = 2
"""Threads that read: a checksum runs beside Python. Each holds one segment."""


class Sources(Protocol):
    """What an aggregation asks of a coverage; see `Coverage` for the meaning of the parts."""

    @property
    def bounds(self) -> npt.NDArray[np.int64]:
        """int64 (n_units + 1,)."""

    @property
    def fingerprint(self) -> str:
        """The run's fingerprint."""

    @property
    def done(self) -> Mapping[int, Path]:
        """Unit -> segment."""

    @property
    def row_state(self) -> npt.NDArray[np.uint8]:
        """uint8 (n_rows,)."""

    @property
    def complete(self) -> bool:
        """No row is missing."""


def read_ahead(paths: Iterable[Path]) -> Iterator[tuple[Path, Segment | DamagedSegmentError]]:
    """Read segments, under whatever names, some ahead of the one that is given; in order.

    Yields
    ------
    Path, Segment or DamagedSegmentError
        The error is given and not raised, so that others can be read behind it.

    Raises
    ------
    SegmentError, OSError
        As `read_segment`.
    """
    ahead: deque[tuple[Path, Future[Segment | DamagedSegmentError]]] = deque()
    with ThreadPoolExecutor(_READERS, "segment-reader") as pool:
        try:
            for path in paths:
                ahead.append((path, pool.submit(_read, path)))
                if len(ahead) > _READERS:
                    yield _taken(ahead)
            while ahead:
                yield _taken(ahead)
        finally:
            for _, future in ahead:
                future.cancel()


def _taken(
    ahead: deque[tuple[Path, Future[Segment | DamagedSegmentError]]],
) -> tuple[Path, Segment | DamagedSegmentError]:
    path, future = ahead.popleft()
    return path, future.result()


def _read(path: Path) -> Segment | DamagedSegmentError:
    try:
        return read_segment(path, any_name=True)
    except DamagedSegmentError as error:
        return error

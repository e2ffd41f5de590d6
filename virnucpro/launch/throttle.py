"""Limit of the share of time that repeated updates take."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

__all__ = ["Throttle"]

_SHARE: Final = 20
"""Minimum seconds between two updates, per second that the last update took."""


class Throttle:
    """Limits the rate of updates: the time between two updates grows with their duration.

    Parameters
    ----------
    least_s
        Minimum seconds between two updates.
    """

    def __init__(self, least_s: float = 0.0) -> None:
        self._least_s = least_s
        self._not_before = 0.0

    @property
    def due(self) -> bool:
        """Whether an update may begin now."""
        return time.monotonic() >= self._not_before

    @contextmanager
    def timed(self) -> Iterator[None]:
        """Return a context in which one update takes place; its duration delays the next one."""
        started = time.monotonic()
        yield
        now = time.monotonic()
        self._not_before = now + max(self._least_s, _SHARE * (now - started))

"""Composition of the records of a run, computed once, if possible while the ranks compute."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from threading import Event

from virnucpro.classifier.decision import RecordQuality
from virnucpro.classifier.quality import record_quality
from virnucpro.sequences.index import SequenceIndex

__all__ = ["RunQuality"]


class RunQuality:
    """The composition of all records of an index: `get` computes it at the first call."""

    def __init__(self, index: SequenceIndex) -> None:
        self._index = index
        self._quality: RecordQuality | None = None

    def get(self) -> RecordQuality:
        """Return the composition, as `record_quality`."""
        if self._quality is None:
            self._quality = record_quality(self._index)
        return self._quality

    @contextmanager
    def computed_meanwhile(self, then: Callable[[], object] = lambda: None) -> Iterator[None]:
        """Compute the composition, then call `then`, in a thread while the block runs.

        An error in the block ends the thread. An error of `then` is ignored: who needs its effect
        meets the error again.
        """
        stopped = Event()
        with ThreadPoolExecutor(1, "virnucpro-quality") as pool:
            quality = pool.submit(record_quality, self._index, stopped.is_set)
            pool.submit(then)
            try:
                yield
                self._quality = quality.result()
            finally:
                stopped.set()
                pool.shutdown(cancel_futures=True)

"""Work made ready by a thread while the work before it is done."""

from collections.abc import Callable, Generator, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

__all__ = ["prefetch_one"]

Item = TypeVar("Item")
Made = TypeVar("Made")


def prefetch_one(
    items: Iterable[Item], make: Callable[[Item], Made]
) -> Generator[tuple[Item, Future[Made]]]:
    """Make each item ready while its predecessor is in the caller's hands.

    One item is on its way at any time, so that two are held at most. Close the iterator, or use it
    up: its thread ends then.

    Parameters
    ----------
    items
        Drawn in the caller's thread, one before it is needed.
    make
        Called in a thread of its own, one item at a time, in their order.

    Yields
    ------
    item
        In their order.
    made : Future
        What `make` gave for it, or the error that it raised.
    """
    with ThreadPoolExecutor(1, "feeder") as thread:
        earlier: tuple[Item, Future[Made]] | None = None
        try:
            for item in items:
                coming = item, thread.submit(make, item)
                if earlier is not None:
                    yield earlier
                earlier = coming
            if earlier is not None:
                yield earlier
        finally:
            thread.shutdown(wait=False, cancel_futures=True)

"""The next piece of work, prepared by a thread during the current one."""

from collections.abc import Callable, Generator, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

__all__ = ["prefetch_one"]

Item = TypeVar("Item")
Made = TypeVar("Made")


def prefetch_one(
    items: Iterable[Item], make: Callable[[Item], Made]
) -> Generator[tuple[Item, Future[Made]]]:
    """Prepare each item while the caller has its predecessor.

    One item is prepared at a time, so at most two are in memory. The thread ends when the iterator
    is exhausted or closed.

    Parameters
    ----------
    items
        Drawn in the caller's thread, one in advance.
    make
        Called in another thread, one item at a time, in order.

    Yields
    ------
    item
        In order.
    made : Future
        Result or error of `make`.
    """
    with ThreadPoolExecutor(1, "prefetch") as thread:
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

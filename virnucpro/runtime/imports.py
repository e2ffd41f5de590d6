"""Imports of what is large and stays for good."""

import gc
import importlib
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

__all__ = ["import_ahead", "uncollected"]


@contextmanager
def uncollected() -> Iterator[None]:
    """Keep the garbage collector off what is made meanwhile, now and later.

    Half a million objects of torch's modules are looked through several times while they are made,
    which takes a fifth of the import, and each time that a full collection is due from then on.
    """
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        if was_on:
            gc.enable()


def import_ahead(modules: Sequence[str]) -> None:
    """Import modules by name; nothing happens where all are there.

    A process that does one run after the other comes here for each: what it has made since must
    stay the collector's.

    Raises
    ------
    ImportError
        When there is no such module; and whatever its import raises.
    """
    new = [name for name in modules if name not in sys.modules]
    if not new:
        return
    with uncollected():
        for name in new:
            importlib.import_module(name)

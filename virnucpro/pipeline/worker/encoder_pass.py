"""Encodes the rows of a unit in batches; halves a batch that does not fit into memory."""

from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import NamedTuple, TypeVar

import numpy as np
import torch

from virnucpro.encoders.base import IntArray
from virnucpro.encoders.batching import Filling, TokenBudget, longest_first
from virnucpro.encoders.device import Shortage, within_memory
from virnucpro.encoders.encoder import Encoder
from virnucpro.encoders.packed import Packed

__all__ = ["EncoderPass", "UnitTokens", "fetching", "prefetch_one"]

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


class UnitTokens:
    """Token ids of a unit's rows.

    Attributes
    ----------
    unit
        Number of the unit.
    ids
        Token ids of each row; empty for a row that is not encoded.
    lengths
        (n,) int64, tokens of each row.
    order
        (n,) int64, rows by descending length. Positions of a `UnitSpan` are indices of it.
    """

    def __init__(self, unit: int, ids: Sequence[IntArray]) -> None:
        self.unit = unit
        self.ids = ids
        self.lengths = np.array([len(row) for row in ids], np.int64)
        self.order = longest_first(self.lengths)


class _Launched(NamedTuple):
    """A batch on the device: positions in the unit's order, its budget, a call for its vectors."""

    positions: IntArray
    budget: int
    fetch: Callable[[], torch.Tensor]


class EncoderPass:
    """Encodes the rows of a unit once.

    Parameters
    ----------
    encoder, budget
        The encoder and its token budget, which is adapted to the available memory.
    tokens
        The unit.
    before
        Called with the positions of each batch before it is encoded.
    after
        Called with the number of rows of each batch after it is encoded.
    prefetch
        Collate the next batch and queue it on the device while the current one is computed.

    Attributes
    ----------
    vectors
        (n, dim) float32 on the CPU; zeros for rows without a vector.
    shortages
        Row within the unit -> shortage, for rows that do not fit alone.
    filling
        Tokens and budgets of the encoded batches.
    """

    def __init__(
        self,
        encoder: Encoder,
        budget: TokenBudget,
        tokens: UnitTokens,
        before: Callable[[IntArray], None],
        after: Callable[[int], None],
        *,
        prefetch: bool,
    ) -> None:
        self.vectors = torch.zeros(len(tokens.ids), encoder.dim)
        self.shortages: dict[int, Shortage] = {}
        self.filling = Filling()
        self._encoder, self._budget, self._tokens = encoder, budget, tokens
        self._before, self._after, self._prefetch = before, after, prefetch
        self._launched: deque[_Launched] = deque()

    def run(self, batches: Iterator[IntArray]) -> None:
        """Encode all batches, given as positions in the unit's order."""
        if self._prefetch:
            for positions, collated in prefetch_one(batches, self._collate):
                self._launch(positions, collated.result)
        else:
            for positions in batches:
                self._launch(positions, partial(self._collate, positions))
        self._fetch(0)

    def _collate(self, positions: IntArray) -> Packed:
        rows = self._tokens.order[positions]
        return self._encoder.collate([self._tokens.ids[row] for row in rows])

    def _launch(self, positions: IntArray, collated: Callable[[], Packed]) -> None:
        """Queue a batch; wait for the previous one, or for this one without prefetch."""
        self._before(positions)
        budget = self._budget(int(self._lengths(positions).max()))
        fetch = within_memory(lambda: fetching(self._encoder.encode(collated())))
        if isinstance(fetch, Shortage):
            self._fetch(0)
            self._split(positions, fetch)
        else:
            self._launched.append(_Launched(positions, budget, fetch))
            self._fetch(1 if self._prefetch else 0)

    def _fetch(self, leave: int) -> None:
        """Wait for the oldest batches until at most `leave` are queued."""
        while len(self._launched) > leave:
            positions, budget, fetch = self._launched.popleft()
            vectors = within_memory(fetch)
            if isinstance(vectors, Shortage):
                self._split(positions, vectors)
                continue
            lengths = self._lengths(positions)
            self.vectors[torch.from_numpy(self._tokens.order[positions])] = vectors
            self._budget.fitted(int(lengths.max()))
            self.filling = self.filling.after(int(lengths.sum()), budget)
            self._after(len(positions))

    def _split(self, positions: IntArray, shortage: Shortage) -> None:
        """Encode the halves of a batch that does not fit; record a row that does not fit alone."""
        self._budget.was_short()
        if len(positions) == 1:
            self.shortages[int(self._tokens.order[positions[0]])] = shortage
            self._after(1)
            return
        lengths = self._lengths(positions)
        self._budget.lower(int(lengths.max()), int(lengths.sum()))
        for half in np.array_split(positions, 2):
            self._launch(half, partial(self._collate, half))

    def _lengths(self, positions: IntArray) -> IntArray:
        lengths: IntArray = self._tokens.lengths[self._tokens.order[positions]]
        return lengths


def fetching(vectors: torch.Tensor) -> Callable[[], torch.Tensor]:
    """Start the copy of a batch's vectors to the CPU.

    Returns
    -------
    callable
        Waits for this copy alone, not for later work on the device, and returns it.
    """
    if not vectors.is_cuda:
        return lambda: vectors
    copy = vectors.to("cpu", non_blocking=True)  # into pinned memory
    # blocking: the thread sleeps; by default it would spin and take a CPU from other work
    copied = torch.cuda.Event(blocking=True)  # type: ignore[no-untyped-call]
    copied.record()

    def fetch() -> torch.Tensor:
        copied.synchronize()
        return copy

    return fetch
